//! Byte streams to brokers and from clients: plain TCP, or TLS by rustls, behind one type.
//!
//! Invariant: whoever holds a [`Stream`] cannot tell TLS from plain TCP, but for one duty: TLS keeps bytes
//! that the socket did not take, so a writer ends every burst with a flush.

mod connector;
mod deadline;
mod expiry;
pub(crate) mod http;
mod own;
mod pipe;
mod read_ahead;
mod reasons;
mod stream;
#[cfg(test)]
mod tests;
mod tls;

pub use connector::{Acceptor, Connector, NotAccepted};
pub(crate) use deadline::{deadline_in, share};
pub(crate) use expiry::expires_at;
pub use own::Own;
pub use pipe::{Pipe, lend as lend_pipe};
pub use reasons::{Side, explained, tls_reason};
pub use stream::Stream;
pub use tls::TlsConfigError;
