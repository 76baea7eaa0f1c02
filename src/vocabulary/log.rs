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
