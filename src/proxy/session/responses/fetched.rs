//! Responses to Fetch and ShareFetch: read on their way for what they serve, and the broker addresses in their tail
//! (KIP-951) rewritten.

use bytes::Bytes;

use super::{HEAD_BYTES, Intake, LONGEST_ADDRESSES, Session};
use crate::count::{Count as _, total};
use crate::proxy::fetches::Next;
use crate::proxy::in_flight::Expected;
use crate::wire::addresses::{self, TailKind};
use crate::wire::api::PREFIX_BYTES;
use crate::wire::walk::{self, Walker};
use crate::wire::{Malformed, Reason};

pub(super) fn walker(kind: TailKind, version: i16, frame_bytes: usize) -> Walker {
    let message = match kind {
        TailKind::Fetch => &walk::FETCH_RESPONSE,
        TailKind::ShareFetch => &walk::SHARE_FETCH_RESPONSE,
    };
    Walker::new(
        message,
        version,
        frame_bytes.saturating_sub(HEAD_BYTES) as u64,
    )
}

impl Session {
    pub(super) fn rewrite_whole_tail(
        &mut self,
        frame: Bytes,
        kind: TailKind,
        expected: &Expected,
    ) -> Result<(), Malformed> {
        let mut walker = walker(kind, expected.api_version, frame.len());
        self.fetches.get_or_insert_default().begin_response(false);
        let walked = self.fetches.get_or_insert_default().read_response(
            &mut walker,
            Next::Here(frame.get(HEAD_BYTES..).unwrap_or_default()),
            &mut self.judge.topics,
            (&self.shared, &self.who, self.last_traffic),
        )?;
        if !walker.is_at_tail() {
            return Err(Malformed::new("response_length", Reason::Truncated));
        }
        let tail_at = HEAD_BYTES.saturating_add(walked);
        let (body, tail) = frame
            .split_at_checked(tail_at)
            .ok_or(Malformed::new("response_length", Reason::Truncated))?;
        if !addresses::has_addresses(tail, kind)? {
            self.to_client.push(frame);
            return Ok(());
        }
        let tail = addresses::rewrite_tail(tail, kind, &self.shared.advertised)?;
        let length = total([body.len(), tail.len()]).saturating_sub(PREFIX_BYTES);
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        self.to_client
            .push(Bytes::copy_from_slice(&length.to_be_bytes()));
        self.to_client.push(frame.slice(PREFIX_BYTES..tail_at));
        self.to_client.push(tail.into());
        Ok(())
    }

    /// A Fetch response passes as it comes, whatever it is.
    pub(super) fn watch(&mut self) {
        let Intake::Watch {
            walker,
            head_left,
            left,
            ..
        } = &mut self.responses.intake
        else {
            return;
        };
        let here = (*left).min(self.responses.rest.len());
        let chunk = self.responses.rest.split_to(here);
        left.decrease_by(here);
        let body = chunk.get(std::mem::take(head_left)..).unwrap_or_default();
        let is_over = *left == 0;
        let fetches = self.fetches.get_or_insert_default();
        let topics = &mut self.judge.topics;
        let context = (&*self.shared, &self.who, self.last_traffic);
        walker.take_if(|walker| {
            fetches
                .read_response(walker, Next::Here(body), topics, context)
                .is_err()
        });
        self.to_client.push(chunk);
        if is_over {
            self.end_response();
        }
    }

    /// A response too large to be here at once: its length has left already, so its tail keeps its length.
    pub(super) fn walk_tail(&mut self) -> Result<(), Malformed> {
        let Intake::Tail {
            walker,
            left,
            tail,
            kind,
            ..
        } = &mut self.responses.intake
        else {
            return Ok(());
        };
        let here = (*left).min(self.responses.rest.len());
        let mut chunk = self.responses.rest.split_to(here);
        left.decrease_by(here);
        let is_over = *left == 0;
        let walked = self.fetches.get_or_insert_default().read_response(
            walker,
            Next::Here(&chunk),
            &mut self.judge.topics,
            (&self.shared, &self.who, self.last_traffic),
        )?;
        self.to_client.push(chunk.split_to(walked));
        tail.extend_from_slice(&chunk);
        if tail.len() > LONGEST_ADDRESSES {
            return Err(Malformed::new("node_endpoints", Reason::TooLong));
        }
        if is_over {
            if !walker.is_at_tail() {
                return Err(Malformed::new("response_length", Reason::Truncated));
            }
            let tail = addresses::rewrite_tail_in_place(tail, *kind, &self.shared.advertised)?;
            self.to_client.push(tail.into());
            self.end_response();
        }
        Ok(())
    }
}
