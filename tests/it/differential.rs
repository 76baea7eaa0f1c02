//! The same bytes sent straight to a real broker and through sizegate get the same responses, but for our text.
//!
//! Each case is sent to mirrored topics on both ways, with a probe behind it that tells a connection that lives
//! from one that was closed or hangs. Whatever is meant to differ is an [`Intended`] difference of its case.

mod passing;
mod produce;
mod raw;
mod requests;
mod rest;
mod together;
mod ways;

/// Each of these functions as one test per Kafka release.
macro_rules! on_each_kafka {
    ($($module:ident::$test:ident),+ $(,)?) => {
        mod kafka_4_3_0 {
            $(#[test]
            fn $test() {
                super::$module::$test("4.3.0");
            })+
        }
        mod kafka_4_4_0 {
            $(#[test]
            fn $test() {
                super::$module::$test("4.4.0");
            })+
        }
    };
}

on_each_kafka![
    passing::large_requests_broken_anywhere_and_sent_in_pieces,
    produce::sizes_around_the_limit_at_every_version_acks_and_codec,
    produce::batches_wrong_in_a_way_the_broker_checks_before_or_after_the_size,
    produce::topics_and_partitions_that_do_not_exist,
    produce::a_partition_named_twice_counts_once_with_its_last_batch,
    produce::a_topic_repeated_in_many_entries_is_answered_once_per_partition,
    produce::refused_and_sound_partitions_in_one_request,
    produce::transactional_batches_out_of_order,
    together::flawed_batches_beside_others_and_twice_in_a_partition,
    together::null_records_for_a_partition_that_does_not_exist,
    requests::tagged_fields_nobody_knows,
    requests::client_ids_of_every_kind,
    requests::keys_and_versions_nobody_knows,
    requests::frames_of_impossible_lengths,
    requests::api_versions_in_every_version,
    requests::pipelined_requests_are_answered_in_order,
    rest::every_other_request_in_every_version_with_a_minimal_body,
    rest::every_request_in_every_version_without_a_body,
    rest::requests_about_a_topic_with_records,
];
