//! Classifies failures of the store, and says what follows from each: by the error's *code*, not by its status alone.
//!
//! S3 answers 404 both for a missing key and for a missing bucket, 403 for an expired token, 409 where it means "again":
//! only the code in the body tells them apart.

use std::error::Error as _;
use std::fmt;

use object_store::Error;
use object_store::client::{HttpError, HttpErrorKind};

/// What follows from a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Try again: the store is slow, busy, or was not reached.
    Transient,
    /// There is no such object.
    Missing,
    /// There is one, and it is not what the ticket says.
    Corrupt,
    /// Nothing will change until somebody changes the store, its rights or our configuration.
    Config,
}

impl Class {
    /// All of them.
    pub const ALL: &'static [Self] = &[Self::Transient, Self::Missing, Self::Corrupt, Self::Config];

    /// The metric label and log field.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::Missing => "missing",
            Self::Corrupt => "corrupt",
            Self::Config => "config",
        }
    }
}

/// A request that the store did not do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What follows from it.
    pub class: Class,
    /// The store's own code where it gave one, else what happened: a short word for logs and people.
    pub code: String,
    /// All that is known, for the log; never with a secret.
    pub text: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.text)
    }
}

impl std::error::Error for Failure {}

/// The longest text that is kept: a body may be a page of HTML.
const MOST_TEXT_CHARS: usize = 400;

impl Failure {
    /// Its class, code and text, for the log.
    pub fn told(&self) -> (&str, &str, &str) {
        (self.class.label(), &self.code, &self.text)
    }

    /// A failure of our own finding.
    pub fn new(class: Class, code: &str, text: impl fmt::Display) -> Self {
        Self {
            class,
            code: code.to_owned(),
            text: one_line(&text.to_string()),
        }
    }

    /// Whoever worked on it has ended.
    pub(crate) fn stopped(why: &str) -> Self {
        Self::new(Class::Transient, "Stopped", why)
    }

    /// Nothing came within the time that one request has.
    pub(super) fn timeout() -> Self {
        Self::new(
            Class::Transient,
            "Timeout",
            "the store did not answer in time",
        )
    }

    /// What the store said.
    pub(super) fn of(error: &Error) -> Self {
        let text = error.to_string();
        let said = Said::of(error, &text);
        Self {
            class: class(error, &said),
            code: said.word(error),
            text: one_line(&text),
        }
    }

    /// The store says that the object is there already; S3's 409 says only that somebody writes it just now.
    pub(super) fn is_already_there(&self, error: &Error) -> bool {
        matches!(
            error,
            Error::AlreadyExists { .. } | Error::Precondition { .. }
        ) && self.class != Class::Transient
    }
}

/// What can be read of an error.
struct Said<'a> {
    status: Option<u16>,
    code: Option<&'a str>,
    connection: Option<HttpErrorKind>,
}

impl<'a> Said<'a> {
    fn of(error: &Error, text: &'a str) -> Self {
        let after = |mark: &str| text.split_once(mark).map(|(_, behind)| behind);
        let status = after("status code: ")
            .and_then(|behind| behind.get(..3))
            .and_then(|digits| digits.parse().ok());
        // S3 and Azure answer in XML, Google in JSON.
        let code = after("<Code>")
            .and_then(|behind| behind.split_once("</Code>"))
            .or_else(|| {
                let reason = after("\"reason\":")?.trim_start().strip_prefix('"')?;
                reason.split_once('"')
            })
            .map(|(code, _)| code)
            .filter(|code| code.len() <= 64 && code.bytes().all(|b| b.is_ascii_graphic()));
        Self {
            status,
            code,
            connection: http_error(error),
        }
    }

    fn word(&self, error: &Error) -> String {
        if let Some(code) = self.code {
            return code.to_owned();
        }
        if let Some(status) = self.status {
            return format!("HTTP {status}");
        }
        match (self.connection, error) {
            (Some(HttpErrorKind::Timeout), _) => "Timeout",
            (Some(HttpErrorKind::Connect), _) => "NotConnected",
            (Some(_), _) => "ConnectionLost",
            (None, Error::NotFound { .. }) => "NotFound",
            (None, Error::AlreadyExists { .. }) => "AlreadyExists",
            (None, Error::PermissionDenied { .. }) => "PermissionDenied",
            (None, _) => "StoreError",
        }
        .to_owned()
    }
}

/// The connection's own error, if that is what is at the bottom.
fn http_error(error: &Error) -> Option<HttpErrorKind> {
    let mut source = error.source();
    while let Some(error) = source {
        if let Some(http) = error.downcast_ref::<HttpError>() {
            return Some(http.kind());
        }
        source = error.source();
    }
    None
}

fn class(error: &Error, said: &Said<'_>) -> Class {
    if let Some(class) = said.code.and_then(class_of_code) {
        return class;
    }
    match (said.status, error) {
        (Some(408 | 429 | 500..), _) => Class::Transient,
        // A 404 without a code: the response to a HEAD has no body.
        (Some(404), _) | (None, Error::NotFound { .. }) => Class::Missing,
        // A 409 that does not say what conflicts.
        (Some(409), _) => Class::Transient,
        (Some(200..300), _) => Class::Transient,
        (Some(_), _) => Class::Config,
        (None, _) if said.connection.is_some() => Class::Transient,
        (None, Error::Generic { source, .. }) => class_of_io(source.as_ref()),
        (None, Error::JoinError { .. }) => Class::Transient,
        (None, _) => Class::Config,
    }
}

/// S3's and Azure's codes, and Google's reasons, that mean something else than their status.
fn class_of_code(code: &str) -> Option<Class> {
    Some(match code {
        "SlowDown"
        | "ServiceUnavailable"
        | "InternalError"
        | "RequestTimeout"
        | "Busy"
        | "ServerBusy"
        | "OperationTimedOut"
        | "ThrottlingException"
        | "Throttling"
        | "RequestLimitExceeded"
        | "rateLimitExceeded"
        | "backendError" => Class::Transient,
        // Somebody writes or deletes it at this moment: S3 says "again".
        "ConditionalRequestConflict" | "OperationAborted" => Class::Transient,
        // Credentials are fetched again.
        "ExpiredToken" | "ExpiredTokenException" | "TokenRefreshRequired" | "RequestExpired" => {
            Class::Transient
        }
        "NoSuchKey" | "BlobNotFound" => Class::Missing,
        "BadDigest" | "XAmzContentSHA256Mismatch" | "Md5Mismatch" => Class::Transient,
        "BlobAlreadyExists" | "PreconditionFailed" | "conditionNotMet" => Class::Config,
        "NoSuchBucket"
        | "ContainerNotFound"
        | "AccessDenied"
        | "InvalidAccessKeyId"
        | "SignatureDoesNotMatch"
        | "InvalidObjectState"
        | "BlobArchived"
        | "RequestTimeTooSkewed"
        | "AuthenticationFailed" => Class::Config,
        code if code.starts_with("KMS.") => Class::Config,
        _ => return None,
    })
}

/// A folder's errors: what is full or busy may be otherwise in a moment.
fn class_of_io(source: &(dyn std::error::Error + Send + Sync + 'static)) -> Class {
    use std::io::ErrorKind as Kind;
    let mut source: Option<&dyn std::error::Error> = Some(source);
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<std::io::Error>() {
            return match error.kind() {
                Kind::NotFound | Kind::PermissionDenied | Kind::ReadOnlyFilesystem => Class::Config,
                Kind::NotADirectory | Kind::IsADirectory | Kind::InvalidFilename => Class::Config,
                _ => Class::Transient,
            };
        }
        source = error.source();
    }
    Class::Transient
}

/// Without line breaks, and not longer than a log line bears.
fn one_line(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match words.char_indices().nth(MOST_TEXT_CHARS) {
        Some((at, _)) => format!("{}…", words.get(..at).unwrap_or_default()),
        None => words,
    }
}
