//! Responses to Fetch in which tickets are redeemed: held, and sent when that is done.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;

use super::fetched;
use super::{HEAD_BYTES, Intake, Session};
use crate::count::Count as _;
use crate::proxy::claim_fetches::FetchAsked;
use crate::proxy::fetches::Next;
use crate::proxy::in_flight::Expected;
use crate::proxy::redeem::{self, Job};
use crate::wire::Malformed;
use crate::wire::addresses::TailKind;
use crate::wire::fetch_response::Layout;

/// A response that is being redeemed.
pub(super) type Redeeming = Pin<Box<dyn Future<Output = Result<Vec<Bytes>, Malformed>> + Send>>;

impl Session {
    /// A whole response that may bear tickets.
    pub(super) fn begin_redeeming(
        &mut self,
        frame: Bytes,
        expected: Expected,
        asked: Box<FetchAsked>,
    ) -> Result<(), Malformed> {
        let layout = Layout::read(&frame, expected.api_version)?;
        let candidates = redeem::candidates(&frame, &layout, &asked);
        if candidates.is_empty() {
            let pieces = layout.splice(&frame, |_| None, &self.shared.advertised)?;
            self.pass_redeemed(pieces, expected);
            return Ok(());
        }
        let frame_bytes = frame.len();
        let job = Job {
            shared: Arc::clone(&self.shared),
            frame,
            layout,
            asked,
            candidates,
            rules: self.judge.topics.rules(),
        };
        self.responses.intake = Intake::Redeem {
            redeeming: Box::pin(redeem::redeem(job)),
            frame_bytes,
            expected,
        };
        Ok(())
    }

    /// The response in hand is sent once it is redeemed.
    pub(super) fn poll_redeeming(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Malformed>> {
        let Intake::Redeem { redeeming, .. } = &mut self.responses.intake else {
            return Poll::Ready(Ok(()));
        };
        let pieces = std::task::ready!(redeeming.as_mut().poll(cx))?;
        self.acted_at = std::time::Instant::now();
        if let Intake::Redeem { expected, .. } = std::mem::take(&mut self.responses.intake) {
            self.pass_redeemed(pieces, expected);
        }
        self.place_made();
        Poll::Ready(Ok(()))
    }

    /// Sends a response; what its consumer gets is looked at as if it had streamed past.
    fn pass_redeemed(&mut self, pieces: Vec<Bytes>, expected: Expected) {
        let bytes = pieces.iter().map(Bytes::len).sum();
        let mut walker = fetched::walker(TailKind::Fetch, expected.api_version, bytes);
        let fetches = self.fetches.get_or_insert_default();
        fetches.begin_response(false);
        let mut head_left = HEAD_BYTES;
        for piece in &pieces {
            let skipped = head_left.min(piece.len());
            head_left.decrease_by(skipped);
            let read = fetches.read_response(
                &mut walker,
                Next::Here(piece.get(skipped..).unwrap_or_default()),
                &mut self.judge.topics,
                (&self.shared, &self.who, self.last_traffic),
            );
            if read.is_err() || walker.is_at_tail() {
                break;
            }
        }
        for piece in pieces {
            self.to_client.push_paid(piece);
        }
        self.answered(&expected);
    }
}
