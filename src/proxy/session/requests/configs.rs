//! Requests that set configs of topics and brokers: held where something governs them, judged, and carried out.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;

use super::{Session, Waiting};
use crate::proxy::budget::Lease;
use crate::proxy::governed::{self, Decision, Facts, Look};
use crate::proxy::in_flight::Response;
use crate::proxy::session::Close;
use crate::proxy::session::buffers::BUFFER_BYTES;
use crate::wire::Malformed;
use crate::wire::api::{self, FrameHead};
use crate::wire::config_requests::{Kind, Layout};
use crate::wire::config_response::{self, RefusedResource};
use crate::wire::splice::Piece;

/// A request whose verdict waits for what the cluster says.
pub(crate) struct Pending {
    head: FrameHead,
    frame: Bytes,
    lease: Lease,
    gathering: Pin<Box<dyn Future<Output = Facts> + Send>>,
}

impl Pending {
    /// What was read, once it was.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Facts> {
        self.gathering.as_mut().poll(cx)
    }
}

/// A broker's response with what was refused here.
pub(crate) fn merged(
    frame: Bytes,
    api_key: i16,
    version: i16,
    refused: &[RefusedResource],
) -> Result<Bytes, Malformed> {
    match Kind::of(api_key, version) {
        Some(kind) => config_response::merge(&frame, kind, version, refused).map(Bytes::from),
        None => Ok(frame),
    }
}

impl Session {
    /// The request sets configs, and something governs them. One in a version that no broker has passes.
    pub(super) fn governs(&self, head: &FrameHead) -> bool {
        Kind::of(head.api_key, head.api_version).is_some()
            && self.shared.policy.load().governs_configs()
    }

    /// A whole frame; `facts`: what was read for it.
    pub(super) fn on_configs(
        &mut self,
        head: FrameHead,
        frame: Bytes,
        mut lease: Lease,
        facts: Option<&Facts>,
    ) {
        let Some(kind) = Kind::of(head.api_key, head.api_version) else {
            return;
        };
        let layout = match Layout::read(&frame, kind, head.api_version) {
            Ok(layout) => layout,
            Err(malformed) => return self.end(Close::MalformedRequest(malformed)),
        };
        self.who.learn_client_id(api::frame_client_id(&frame));
        match governed::decide(&self.shared, &self.who, &layout, &frame, facts) {
            Look::Wish(wish) => {
                // The frame keeps the worker's buffer meanwhile.
                if lease.is_empty() {
                    lease = self.shared.budget.charge(BUFFER_BYTES);
                }
                let gathering = Box::pin(governed::gather(Arc::clone(&self.shared), wish));
                self.requests.waiting = Some(Waiting::Configs(Pending {
                    head,
                    frame,
                    lease,
                    gathering,
                }));
            }
            Look::Decided(decision) => {
                self.carry_out_configs(head, frame, &layout, decision);
                self.to_upstream.hold(lease);
            }
        }
    }

    /// What was waited for is here.
    pub(super) fn on_configs_known(&mut self, pending: Pending, facts: Facts) {
        let Pending {
            head, frame, lease, ..
        } = pending;
        self.on_configs(head, frame, lease, Some(&facts));
    }

    fn carry_out_configs(
        &mut self,
        head: FrameHead,
        frame: Bytes,
        layout: &Layout,
        decision: Decision,
    ) {
        let Decision { kept, refused } = decision;
        if refused.is_empty() {
            self.expect(&head, Response::Forwarded);
            self.to_upstream.push(frame);
            return;
        }
        if kept.is_empty() {
            let FrameHead {
                api_version,
                correlation_id,
                ..
            } = head;
            let response =
                config_response::response(layout.kind, api_version, correlation_id, &refused);
            self.expect(&head, Response::Made(response.into()));
            return;
        }
        for piece in layout.splice(&kept) {
            self.to_upstream.push(match piece {
                Piece::Original(range) => frame.slice(range),
                Piece::Made(bytes) => bytes,
            });
        }
        self.expect(&head, Response::Configs(refused));
    }
}
