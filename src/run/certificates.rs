//! Certificates read again: on SIGHUP, or when what their files hold changes (cert-manager and kubelet swap
//! symlinks, so the content is compared). Connections that are open keep what they were made with.
//!
//! Invariant: what is in force is always a key that fits its certificate. Files that cannot be used change nothing.

use std::path::Path;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::config::{ClientTls, Config, ServerTls};
use crate::net::expires_at;
use crate::proxy::Shared;

/// What the files held: keys are not kept, only their digest.
type Content = [u8; 32];

/// The certificate files of a configuration, and what they held when last loaded.
pub(super) struct Certificates {
    seen: Content,
    /// Held something new at the last look. A certificate and its key are two files: they are loaded once they
    /// have stayed the same for a look.
    changing: Option<Content>,
}

impl Certificates {
    /// As they are now, which is what the process started with.
    pub(super) async fn in_force(config: &Config) -> Self {
        Self {
            seen: content(config).await,
            changing: None,
        }
    }

    /// Takes changed files over once they are at rest.
    pub(super) async fn look(&mut self, config: &Config, shared: &Arc<Shared>) {
        let now = content(config).await;
        if now == self.seen {
            self.changing = None;
        } else if self.changing == Some(now) {
            self.take_over(now, config, shared);
        } else {
            self.changing = Some(now);
        }
    }

    /// Takes changed files over at once: somebody asked for it.
    pub(super) async fn reload(&mut self, config: &Config, shared: &Arc<Shared>) {
        let now = content(config).await;
        if now != self.seen {
            self.take_over(now, config, shared);
        }
    }

    fn take_over(&mut self, now: Content, config: &Config, shared: &Arc<Shared>) {
        // Also where they cannot be used: once is enough to say so.
        self.seen = now;
        self.changing = None;
        let listener = shared.acceptor.reload(config.listener.tls.as_ref());
        let cluster = shared.connector.reload(&config.cluster);
        shared.metrics.reloaded(listener.is_ok() && cluster.is_ok());
        match listener.and(cluster) {
            Ok(()) => {
                shared.certificates.store(Arc::new(expiries(config)));
                tracing::info!("certificates reloaded, for connections from now on");
            }
            Err(error) => tracing::error!(
                %error,
                "the changed certificates cannot be used; those read before stay in force"
            ),
        }
    }
}

/// When the first certificate of each file ends. One that cannot be read has been told of elsewhere.
pub(super) fn expiries(config: &Config) -> Vec<(&'static str, u64)> {
    let of = |(key, file)| Some((key, expires_at(file)?));
    certificate_files(config)
        .into_iter()
        .filter_map(of)
        .collect()
}

fn certificate_files(config: &Config) -> Vec<(&'static str, &Path)> {
    let mut files = Vec::new();
    if let Some(tls) = &config.listener.tls {
        files.push(("listener.tls.cert_file", tls.identity.cert_file.as_path()));
        let client_ca = tls.client_ca_file.as_deref();
        files.extend(client_ca.map(|file| ("listener.tls.client_ca_file", file)));
    }
    if let Some(tls) = &config.cluster.tls {
        files.extend(
            tls.ca_file
                .as_deref()
                .map(|file| ("cluster.tls.ca_file", file)),
        );
        let own = tls.identity.as_ref();
        files.extend(own.map(|own| ("cluster.tls.cert_file", own.cert_file.as_path())));
    }
    files
}

async fn content(config: &Config) -> Content {
    let mut digest = Sha256::new();
    for file in files(config) {
        // A file that is gone is a change too.
        let bytes = tokio::fs::read(file).await.unwrap_or_default();
        digest.update((bytes.len() as u64).to_be_bytes());
        digest.update(&bytes);
    }
    digest.finalize().into()
}

fn files(config: &Config) -> Vec<&Path> {
    let mut files: Vec<&Path> = Vec::new();
    if let Some(ServerTls {
        identity,
        client_ca_file,
    }) = &config.listener.tls
    {
        files.extend([identity.cert_file.as_path(), identity.key_file.as_path()]);
        files.extend(client_ca_file.as_deref());
    }
    if let Some(ClientTls {
        ca_file, identity, ..
    }) = &config.cluster.tls
    {
        files.extend(ca_file.as_deref());
        files.extend(
            identity
                .iter()
                .flat_map(|own| [own.cert_file.as_path(), own.key_file.as_path()]),
        );
    }
    files
}
