//! Names what is logged and counted, and in how much detail.

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
    /// Which histograms a topic has in `/metrics`.
    Histograms {
        /// None: counts and the largest sizes only.
        None = "none",
        /// Batches on the wire and records, in a few buckets; of other sizes number and sum.
        Few = "few",
        /// All, in powers of two.
        All = "all",
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
