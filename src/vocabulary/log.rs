//! Names the formats and levels of the log.

labelled! {
    /// How log lines look.
    LogFormat {
        /// `key=value` text.
        Text = "text",
        /// One JSON object per line.
        Json = "json",
    }
}

labelled! {
    /// What is told of the key of a record that was refused.
    RecordKey {
        /// Nothing.
        None = "none",
        /// The first 8 bytes of its SHA-256.
        Hash = "hash",
        /// Its first 8 characters.
        Prefix = "prefix",
        /// Its first 256 characters.
        Full = "full",
    }
}

labelled! {
    /// How severe an event must be to be logged.
    LogLevel {
        /// What needs someone now.
        Error = "error",
        /// What should be looked at; refusals.
        Warn = "warn",
        /// Start, stop, reloads, connections refused.
        Info = "info",
        /// Each connection.
        Debug = "debug",
        /// Each request.
        Trace = "trace",
    }
}
