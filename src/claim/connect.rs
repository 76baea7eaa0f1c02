//! Makes a store of the configuration's `store` and `store_options`.
//!
//! `file:///FOLDER` is the embedded one: written beside, synced, renamed. `s3://`, `gs://` and `az://` are reached with
//! their usual environment, which the options override.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, Checksum};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{BackoffConfig, ObjectStore, RetryConfig};

use super::digests::Digests;
use super::patience::Patience;
use super::store::Store;

/// What kind of store it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scheme {
    File,
    S3,
    Google,
    Azure,
}

/// Where the objects are: `file:///FOLDER`, `s3://BUCKET[/FOLDER]`, `gs://…`, `az://CONTAINER[/FOLDER]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreUri {
    scheme: Scheme,
    /// The bucket or container; empty for a folder.
    bucket: String,
    /// Without a slash at either end.
    folder: String,
}

impl StoreUri {
    /// What may stand there.
    pub const ALLOWED: &str =
        "file:///FOLDER, s3://BUCKET[/FOLDER], gs://BUCKET[/FOLDER] or az://CONTAINER[/FOLDER]";

    /// Whether the store knows an option of this name; a folder knows none.
    pub fn has_option(&self, key: &str) -> bool {
        let key = key.to_ascii_lowercase();
        match self.scheme {
            Scheme::File => false,
            Scheme::S3 => key.parse::<AmazonS3ConfigKey>().is_ok(),
            Scheme::Google => key.parse::<GoogleConfigKey>().is_ok(),
            Scheme::Azure => key.parse::<AzureConfigKey>().is_ok(),
        }
    }
}

impl FromStr for StoreUri {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<Self, StoreError> {
        let unknown = || StoreError("no such store".to_owned());
        let (scheme, rest) = text.split_once("://").ok_or_else(unknown)?;
        let scheme = match scheme {
            "file" => Scheme::File,
            "s3" => Scheme::S3,
            "gs" => Scheme::Google,
            "az" => Scheme::Azure,
            _ => return Err(unknown()),
        };
        let (bucket, folder) = rest.split_once('/').unwrap_or((rest, ""));
        let is_folder = scheme == Scheme::File;
        if bucket.is_empty() != is_folder || (is_folder && folder.is_empty()) {
            return Err(unknown());
        }
        let folder = folder.strip_suffix('/').unwrap_or(folder);
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-=+@,~".contains(&byte);
        let is_part = |part: &str| {
            !part.is_empty() && part != "." && part != ".." && part.bytes().all(is_plain)
        };
        let folders = folder.split('/').filter(|_| !folder.is_empty());
        let buckets = std::iter::once(bucket).filter(|_| !is_folder);
        if !folders.chain(buckets).all(is_part) {
            return Err(StoreError(
                "a store's folders are made of letters, digits and `. _ - = + @ , ~`".to_owned(),
            ));
        }
        Ok(Self {
            scheme,
            bucket: bucket.to_owned(),
            folder: folder.to_owned(),
        })
    }
}

impl fmt::Display for StoreUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.scheme {
            Scheme::File => "file",
            Scheme::S3 => "s3",
            Scheme::Google => "gs",
            Scheme::Azure => "az",
        };
        write!(f, "{scheme}://{}", self.bucket)?;
        if self.folder.is_empty() {
            Ok(())
        } else {
            write!(f, "/{}", self.folder)
        }
    }
}

/// A store that cannot be one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreError(pub String);

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StoreError {}

/// The options that are ours to set: what `Patience` bounds must not be cut off below it, and it alone retries.
const CLIENT_OPTIONS: [(&str, &str); 2] =
    [("timeout", "10 minutes"), ("connect_timeout", "3 seconds")];

fn no_retries() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig::default(),
        max_retries: 0,
        retry_timeout: std::time::Duration::ZERO,
    }
}

impl Store {
    /// Opens a store; sends nothing yet.
    ///
    /// # Errors
    /// An option that the store does not have, a value that cannot be, a folder that cannot be made.
    pub fn open(uri: &StoreUri, options: &[(String, String)]) -> Result<Self, StoreError> {
        // TLS is the one provider of the whole process; that another part has set it already is as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let url = format!("{}://{}", scheme_of(uri), uri.bucket);
        let store: Arc<dyn ObjectStore> = match uri.scheme {
            Scheme::File => return open_folder(uri, options),
            Scheme::S3 => {
                check_environment("AWS_", uri)?;
                let builder = AmazonS3Builder::from_env().with_url(url);
                let builder = configured(builder, options, |builder, key, value| {
                    Some(builder.with_config(key.parse().ok()?, value))
                })?;
                let builder = builder
                    .with_retry(no_retries())
                    .with_checksum_algorithm(Checksum::SHA256)
                    .with_crypto_provider(Arc::new(Digests));
                Arc::new(builder.build().map_err(as_store_error)?)
            }
            Scheme::Google => {
                check_environment("GOOGLE_", uri)?;
                let builder = GoogleCloudStorageBuilder::from_env().with_url(url);
                let builder = configured(builder, options, |builder, key, value| {
                    Some(builder.with_config(key.parse().ok()?, value))
                })?;
                let builder = builder.with_retry(no_retries());
                Arc::new(builder.build().map_err(as_store_error)?)
            }
            Scheme::Azure => {
                check_environment("AZURE_", uri)?;
                let builder = MicrosoftAzureBuilder::from_env().with_url(url);
                let builder = configured(builder, options, |builder, key, value| {
                    Some(builder.with_config(key.parse().ok()?, value))
                })?;
                let builder = builder.with_retry(no_retries());
                Arc::new(builder.build().map_err(as_store_error)?)
            }
        };
        Ok(Self::new(
            store,
            Path::from(uri.folder.as_str()),
            Patience::default(),
        ))
    }
}

fn scheme_of(uri: &StoreUri) -> &'static str {
    match uri.scheme {
        Scheme::File => "file",
        Scheme::S3 => "s3",
        Scheme::Google => "gs",
        Scheme::Azure => "az",
    }
}

/// Sets our own options first, so that a user's come last.
fn configured<B: Clone>(
    builder: B,
    options: &[(String, String)],
    set: impl Fn(B, &str, &str) -> Option<B>,
) -> Result<B, StoreError> {
    let ours = CLIENT_OPTIONS.iter().copied();
    let theirs = options
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()));
    theirs
        .clone()
        .try_for_each(|(key, value)| check_endpoint(key, value))?;
    ours.chain(theirs)
        .try_fold(builder, |builder, (key, value)| {
            set(builder, &key.to_ascii_lowercase(), value)
                .ok_or_else(|| StoreError(format!("this store has no option `{key}`")))
        })
}

/// The same for what the store takes from the environment.
fn check_environment(prefix: &str, uri: &StoreUri) -> Result<(), StoreError> {
    let taken = std::env::vars_os().filter_map(|(key, value)| {
        let (key, value) = (key.into_string().ok()?, value.into_string().ok()?);
        (key.starts_with(prefix) && uri.has_option(&key)).then_some((key, value))
    });
    for (key, value) in taken {
        check_endpoint(&key, &value)?;
    }
    Ok(())
}

/// Options that are URLs, whatever stands in front.
const ENDPOINTS: [&str; 5] = [
    "endpoint",
    "endpoint_url",
    "endpoint_url_s3",
    "endpoint_url_sts",
    "base_url",
];

/// `object_store` takes an endpoint at its word, and panics at the first request where it is no URL.
fn check_endpoint(key: &str, value: &str) -> Result<(), StoreError> {
    let name = key.to_ascii_lowercase();
    let is_url = ENDPOINTS.iter().any(|option| name.ends_with(option));
    if !is_url || name.ends_with("use_fabric_endpoint") {
        return Ok(());
    }
    let authority = value
        .strip_prefix("http://")
        .or_else(|| value.strip_prefix("https://"))
        .and_then(|rest| rest.split('/').next());
    let is_host = |host: &str| {
        !host.is_empty()
            && host
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b".-_[]:".contains(&byte))
    };
    let is_fine = authority.is_some_and(|authority| match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => is_host(host) && port.parse::<u16>().is_ok(),
        _ => is_host(authority),
    });
    if is_fine {
        Ok(())
    } else {
        Err(StoreError(format!(
            "`{key}` is no endpoint: write http://HOST:PORT or https://HOST"
        )))
    }
}

fn open_folder(uri: &StoreUri, options: &[(String, String)]) -> Result<Store, StoreError> {
    if let Some((key, _)) = options.first() {
        return Err(StoreError(format!("a folder has no option `{key}`")));
    }
    let folder = format!("/{}", uri.folder);
    std::fs::create_dir_all(&folder).map_err(|error| StoreError(format!("{folder}: {error}")))?;
    let store = LocalFileSystem::new_with_prefix(&folder)
        .map_err(as_store_error)?
        .with_fsync(true);
    Ok(Store::new(
        Arc::new(store),
        Path::default(),
        Patience::default(),
    ))
}

fn as_store_error(error: object_store::Error) -> StoreError {
    StoreError(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_written_as_it_is_read() {
        for text in [
            "file:///var/lib/sizegate/claims",
            "s3://bucket",
            "s3://my.bucket-1/a/b",
            "gs://bucket/a",
            "az://container/a",
        ] {
            let uri: StoreUri = text.parse().unwrap();
            assert_eq!(uri.to_string(), text);
            let uri: StoreUri = format!("{text}/").parse().unwrap();
            assert_eq!(uri.to_string(), text);
        }
    }

    #[test]
    fn an_endpoint_is_a_url_or_refused() {
        for (endpoint, is_fine) in [
            ("http://127.0.0.1:9000", true),
            ("http://127.0.0.1:10000/devstoreaccount1", true),
            ("https://s3.eu-west-1.example", true),
            ("http://[::1]:9000", true),
            ("http://[::1]", true),
            ("http://127.0.0.1:123456", false),
            ("http://127.0.0.1:", false),
            ("127.0.0.1:9000", false),
            ("http://", false),
            ("http://a b", false),
        ] {
            let checked = check_endpoint("aws_endpoint", endpoint);
            assert_eq!(checked.is_ok(), is_fine, "{endpoint}");
        }
        for key in [
            "AWS_ENDPOINT_URL",
            "aws_endpoint_url_s3",
            "google_base_url",
            "msi_endpoint",
        ] {
            assert!(check_endpoint(key, "no url").is_err(), "{key}");
        }
        for key in ["region", "azure_use_fabric_endpoint"] {
            assert!(check_endpoint(key, "anything").is_ok(), "{key}");
        }
    }

    #[test]
    fn what_is_no_store_is_refused() {
        for text in [
            "",
            "/var/lib",
            "http://host/a",
            "S3://bucket",
            "s3:///a",
            "s3://",
            "file://host/a",
            "file://a",
            "file:///",
            "file:///a/../b",
            "file:///a//b",
            "s3://bucket/a/./b",
            "s3://bucket/a b",
            "s3://bucket/%2e%2e",
            "s3://user@bu cket",
            "s3://bucket?x=y",
        ] {
            assert!(text.parse::<StoreUri>().is_err(), "{text}");
        }
    }
}
