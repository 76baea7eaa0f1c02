//! A certificate authority for one test run, and leaves it signed. PEM, keys as PKCS#8 (Kafka takes no other).

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// Files in one folder.
#[derive(Debug, Clone)]
pub struct Certs {
    dir: PathBuf,
}

impl Certs {
    /// Makes an authority and the leaves `server` (localhost, 127.0.0.1, ::1, `*.kafka.test`) and `client`, and
    /// `expired`, which was both until 2021.
    pub fn make(dir: &Path) -> Self {
        fs::create_dir_all(dir).unwrap();
        let ca_key = KeyPair::generate().unwrap();
        let mut ca = CertificateParams::default();
        ca.distinguished_name
            .push(DnType::CommonName, "sizegate test authority");
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let ca_pem = ca.self_signed(&ca_key).unwrap().pem();
        fs::write(dir.join("ca.pem"), &ca_pem).unwrap();
        let issuer = Issuer::new(ca, ca_key);

        let leaf = |name: &str, names: &[&str], uses: &[ExtendedKeyUsagePurpose]| {
            let key = KeyPair::generate().unwrap();
            let mut params =
                CertificateParams::new(names.iter().map(ToString::to_string).collect::<Vec<_>>())
                    .unwrap();
            params.distinguished_name.push(DnType::CommonName, name);
            params.extended_key_usages = uses.to_vec();
            if name == "expired" {
                params.not_before = rcgen::date_time_ymd(2020, 1, 1);
                params.not_after = rcgen::date_time_ymd(2021, 1, 1);
            }
            let pem = params.signed_by(&key, &issuer).unwrap().pem();
            fs::write(dir.join(format!("{name}.crt")), &pem).unwrap();
            fs::write(dir.join(format!("{name}.key")), key.serialize_pem()).unwrap();
            // Kafka's PEM key store: key and chain in one file.
            fs::write(
                dir.join(format!("{name}.pem")),
                format!("{}{pem}{ca_pem}", key.serialize_pem()),
            )
            .unwrap();
        };
        use ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};
        leaf(
            "server",
            &[
                "localhost",
                "127.0.0.1",
                "::1",
                "*.kafka.test",
                "kafka.test",
            ],
            &[ServerAuth, ClientAuth],
        );
        leaf("client", &["client.test"], &[ClientAuth]);
        leaf(
            "expired",
            &["localhost", "127.0.0.1"],
            &[ServerAuth, ClientAuth],
        );
        Self {
            dir: dir.to_path_buf(),
        }
    }

    /// The authority's certificate.
    pub fn ca(&self) -> PathBuf {
        self.dir.join("ca.pem")
    }

    /// A leaf's certificate: `server`, `client` or `expired`.
    pub fn cert(&self, leaf: &str) -> PathBuf {
        self.dir.join(format!("{leaf}.crt"))
    }

    /// A leaf's private key.
    pub fn key(&self, leaf: &str) -> PathBuf {
        self.dir.join(format!("{leaf}.key"))
    }

    /// A leaf's private key and chain in one file, for Kafka and its Java clients.
    pub fn store(&self, leaf: &str) -> PathBuf {
        self.dir.join(format!("{leaf}.pem"))
    }
}
