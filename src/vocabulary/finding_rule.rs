//! The rules of `check --cluster` by name: what `ignore` acknowledges and what findings bear.

labelled! {
    /// What is compared.
    FindingRule {
        /// A family's member takes less than its main topic and headroom.
        FamilyMemberTooSmall = "family_member_too_small",
        /// What writes a family's member may take less than the main topic's limits let pass.
        FamilyWriterTooSmall = "family_writer_too_small",
        /// Families of which each has the other as a member.
        FamilyCircle = "family_circle",
        /// A family's member that the configuration names does not exist.
        FamilyMemberAbsent = "family_member_absent",
        /// A family's member is stored with another codec than its main topic.
        FamilyCodec = "family_codec",
        /// What travels compressed to the main topic need not fit its dead-letter topic uncompressed.
        FamilyUncompressed = "family_uncompressed",
        /// `segment.bytes` is below the limit.
        SegmentBelowLimit = "segment_below_limit",
        /// `max.decompressed.message.bytes` is below what our limits let pass.
        DecompressedBelowLimit = "decompressed_below_limit",
        /// `socket.request.max.bytes` is below what the limits need.
        SocketBelowLimit = "socket_below_limit",
        /// `listener.frame_bytes` is below what the limits need.
        FrameBelowLimit = "frame_below_limit",
        /// `listener.frame_bytes` lets pass what the broker closes the connection for.
        FrameAboveSocket = "frame_above_socket",
        /// A topic's override is above what it would inherit.
        OverrideAboveBroker = "override_above_broker",
        /// Brokers have different `message.max.bytes`.
        BrokersDiffer = "brokers_differ",
        /// Replicas' fetch settings are below the limit.
        ReplicaFetchBelowLimit = "replica_fetch_below_limit",
        /// The broker's `fetch.max.bytes` is below the limit.
        FetchBelowLimit = "fetch_below_limit",
        /// The topic stores batches with a codec of its own: they are judged again.
        Recompressed = "recompressed",
        /// A batch limit that no batching client can keep.
        SmallBatchLimit = "small_batch_limit",
        /// A rule matches no topic.
        RuleMatchesNoTopic = "rule_matches_no_topic",
        /// Earlier rules take every topic that a rule matches.
        RuleNeverReached = "rule_never_reached",
        /// The limits in force refuse what topics take that Kafka, Streams, Connect or MirrorMaker keep for themselves.
        InternalTopic = "internal_topic",
        /// A topic has a config that its rule lets nobody set.
        TopicConfigBroken = "topic_config_broken",
        /// A topic that holds tickets keeps them for longer than the store keeps their objects.
        ClaimRetentionShort = "claim_retention_short",
        /// A topic that holds tickets is compacted.
        ClaimCompacted = "claim_compacted",
        /// A compacted topic whose lost records would be left out.
        ClaimCompactedFallback = "claim_compacted_fallback",
        /// A topic whose lost records go to a topic that does not exist.
        ClaimFallbackMissing = "claim_fallback_missing",
        /// A retry or dead-letter topic of a topic that is offloaded and redeemed is not offloaded.
        ClaimMemberInline = "claim_member_inline",
    }
}
