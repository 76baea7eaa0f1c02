//! rustls configurations from PEM files.
//!
//! Invariant: built at start and again when files change; every error names the config key and the file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::config::{ClientTls, Identity, ServerTls};

/// Where systems keep the CAs they trust: Debian and Alpine, Fedora and RHEL, SUSE, macOS and the BSDs.
const PLATFORM_CA_FILES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Why no TLS configuration can be made of what the config names.
#[derive(Debug, thiserror::Error)]
pub enum TlsConfigError {
    /// A file cannot be read, or is not PEM.
    #[error("{key} {}: {source}", path.display())]
    Pem {
        /// The config key that names the file.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: rustls::pki_types::pem::Error,
    },
    /// A file that should hold certificates holds none.
    #[error("{key} {}: holds no certificate", path.display())]
    NoCertificate {
        /// The config key that names the file.
        key: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// No CA file of the platform was found.
    #[error(
        "cluster.tls: this system has no CA file at {}; name one in cluster.tls.ca_file (or in SSL_CERT_FILE)",
        PLATFORM_CA_FILES.join(", ")
    )]
    NoPlatformCas,
    /// A name that no certificate can bear.
    #[error("cluster.tls.server_name {name:?} is neither a DNS name nor an IP address")]
    ServerName {
        /// The name.
        name: String,
    },
    /// rustls refuses a certificate or a key.
    #[error("{key}: {source}")]
    Rustls {
        /// The config key, or section.
        key: &'static str,
        /// What is wrong.
        source: rustls::Error,
    },
    /// The CAs for client certificates cannot be used.
    #[error("listener.tls.client_ca_file: {source}")]
    ClientVerifier {
        /// What is wrong.
        source: rustls::server::VerifierBuilderError,
    },
}

/// TLS towards brokers, and the name to verify if it is not the host's.
pub(super) fn client(
    tls: &ClientTls,
) -> Result<(Arc<ClientConfig>, Option<ServerName<'static>>), TlsConfigError> {
    let roots = match &tls.ca_file {
        Some(path) => roots("cluster.tls.ca_file", path)?,
        None => platform_roots()?,
    };
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(rustls_error("cluster.tls"))?
        .with_root_certificates(roots);
    let config = match &tls.identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let (chain, key) = load(identity, "cluster.tls.cert_file", "cluster.tls.key_file")?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(rustls_error("cluster.tls.cert_file and key_file"))?
        }
    };
    let name = match &tls.server_name {
        None => None,
        Some(name) => Some(
            ServerName::try_from(name.clone())
                .map_err(|_| TlsConfigError::ServerName { name: name.clone() })?,
        ),
    };
    Ok((Arc::new(config), name))
}

/// TLS towards clients.
pub(super) fn server(tls: &ServerTls) -> Result<Arc<ServerConfig>, TlsConfigError> {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(rustls_error("listener.tls"))?;
    let builder = match &tls.client_ca_file {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let roots = Arc::new(roots("listener.tls.client_ca_file", path)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider())
                .build()
                .map_err(|source| TlsConfigError::ClientVerifier { source })?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let (chain, key) = load(
        &tls.identity,
        "listener.tls.cert_file",
        "listener.tls.key_file",
    )?;
    let config = builder
        .with_single_cert(chain, key)
        .map_err(rustls_error("listener.tls.cert_file and key_file"))?;
    Ok(Arc::new(config))
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn rustls_error(key: &'static str) -> impl Fn(rustls::Error) -> TlsConfigError {
    move |source| TlsConfigError::Rustls { key, source }
}

fn platform_roots() -> Result<RootCertStore, TlsConfigError> {
    if let Some(path) = std::env::var_os("SSL_CERT_FILE") {
        return roots("SSL_CERT_FILE", Path::new(&path));
    }
    let path = PLATFORM_CA_FILES
        .iter()
        .map(Path::new)
        .find(|path| path.exists())
        .ok_or(TlsConfigError::NoPlatformCas)?;
    // A platform's bundle may hold a certificate that rustls cannot use; the others still count.
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(certificates("cluster.tls", path)?);
    Ok(store)
}

fn roots(key: &'static str, path: &Path) -> Result<RootCertStore, TlsConfigError> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(key, path)? {
        store.add(certificate).map_err(rustls_error(key))?;
    }
    Ok(store)
}

fn load(
    identity: &Identity,
    cert_key: &'static str,
    key_key: &'static str,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsConfigError> {
    let chain = certificates(cert_key, &identity.cert_file)?;
    let key = PrivateKeyDer::from_pem_file(&identity.key_file)
        .map_err(|source| pem_error(key_key, &identity.key_file, source))?;
    Ok((chain, key))
}

fn certificates(
    key: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, TlsConfigError> {
    let found = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|source| pem_error(key, path, source))?;
    if found.is_empty() {
        return Err(TlsConfigError::NoCertificate {
            key,
            path: path.to_owned(),
        });
    }
    Ok(found)
}

fn pem_error(
    key: &'static str,
    path: &Path,
    source: rustls::pki_types::pem::Error,
) -> TlsConfigError {
    TlsConfigError::Pem {
        key,
        path: path.to_owned(),
        source,
    }
}
