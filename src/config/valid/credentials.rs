//! TLS and SASL sections. The files they name are looked into: a config that starts has its certificates.
//!
//! Invariant: a certificate never stands without its key, nor a user without a password.

use std::path::{Path, PathBuf};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::config::interpolate::{cannot_read, password_from};
use crate::config::mistakes::{Report, below, shown};
use crate::config::raw::{Field, Key, RawClientTls, RawSasl, RawServerTls};
use crate::config::{ClientTls, Identity, Sasl, ServerTls};

pub(super) fn client_tls(raw: RawClientTls, report: &mut Report) -> ClientTls {
    const SECTION: &str = "cluster.tls";
    let wants_identity = !raw.cert_file.is_absent() || !raw.key_file.is_absent();
    ClientTls {
        ca_file: raw
            .ca_file
            .value()
            .map(|path| certificates(SECTION, "ca_file", path, report)),
        identity: if wants_identity {
            identity(SECTION, raw.cert_file, raw.key_file, report)
        } else {
            None
        },
        server_name: raw.server_name.value().map(|name| name.0),
    }
}

pub(super) fn sasl(raw: RawSasl, report: &mut Report) -> Option<Sasl> {
    const SECTION: &str = "cluster.admin.sasl";
    for (key, absent, what) in [
        (
            "mechanism",
            raw.mechanism.is_absent(),
            "`PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`",
        ),
        (
            "username",
            raw.username.is_absent(),
            "the control plane's user",
        ),
    ] {
        if absent {
            report.missing(&below(SECTION, key), what);
        }
    }
    let password_file = &below(SECTION, "password_file");
    let password = match (raw.password, raw.password_file) {
        (Field::Absent, Field::Absent) => {
            report.missing(
                &below(SECTION, "password"),
                "write `password_file: FILE`, or `password: ${VARIABLE}` to take it from the environment",
            );
            None
        }
        (Field::Absent, file) => file
            .value()
            .and_then(|file| password_from(file, password_file, report)),
        (password, Field::Absent) => password.value().map(|secret| secret.0),
        _ => {
            report.note(
                password_file,
                "cannot be combined with `password`: write one of the two",
            );
            None
        }
    };
    Some(Sasl {
        mechanism: raw.mechanism.value()?,
        username: raw.username.value()?.0,
        password: password?,
    })
}

pub(super) fn server_tls(raw: RawServerTls, report: &mut Report) -> Option<ServerTls> {
    const SECTION: &str = "listener.tls";
    let client_ca_file = raw
        .client_ca_file
        .value()
        .map(|path| certificates(SECTION, "client_ca_file", path, report));
    let identity = identity(SECTION, raw.cert_file, raw.key_file, report)?;
    Some(ServerTls {
        identity,
        client_ca_file,
    })
}

/// A certificate and its key: both or a mistake.
fn identity(
    section: &str,
    cert: Key<PathBuf>,
    key: Key<PathBuf>,
    report: &mut Report,
) -> Option<Identity> {
    for (name, absent, what) in [
        ("cert_file", cert.is_absent(), "the certificate chain, PEM"),
        (
            "key_file",
            key.is_absent(),
            "the certificate's private key, PEM",
        ),
    ] {
        if absent {
            report.missing(&below(section, name), what);
        }
    }
    let cert_file = cert
        .value()
        .map(|path| certificates(section, "cert_file", path, report));
    let key_file = key.value();
    if let Some(path) = &key_file
        && let Err(error) = PrivateKeyDer::from_pem_file(path)
    {
        report.note(
            &below(section, "key_file"),
            pem_problem(path, "private key", error),
        );
    }
    Some(Identity {
        cert_file: cert_file?,
        key_file: key_file?,
    })
}

/// Notes if the file at `path` holds no certificate.
fn certificates(section: &str, key: &str, path: PathBuf, report: &mut Report) -> PathBuf {
    let first = CertificateDer::pem_file_iter(&path).and_then(|mut certificates| {
        certificates
            .next()
            .unwrap_or(Err(rustls::pki_types::pem::Error::NoItemsFound))
    });
    if let Err(error) = first {
        report.note(
            &below(section, key),
            pem_problem(&path, "certificate", error),
        );
    }
    path
}

fn pem_problem(path: &Path, what: &str, error: rustls::pki_types::pem::Error) -> String {
    use rustls::pki_types::pem::Error;
    match error {
        Error::Io(error) => cannot_read(path, &error.to_string()),
        Error::NoItemsFound => format!(
            "{} holds no {what} in PEM form",
            shown(&path.display().to_string())
        ),
        error => format!("{} is not PEM: {error}", shown(&path.display().to_string())),
    }
}
