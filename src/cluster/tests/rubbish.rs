//! Responses that no broker should give.

use bytes::{BufMut, Bytes};
use kafka_protocol::messages::ApiKey;

use super::super::responses::Metadata;
use super::super::scripted::{self, ReceivedRequest, Reply, Scripted};
use super::super::shape::check_shape;
use super::{run, when};

/// Runs against a broker that plays `tricks`, and returns the first error.
async fn first_error(
    tricks: impl Fn(&ReceivedRequest) -> Option<Reply> + Send + Sync + 'static,
) -> String {
    let broker = Scripted::with_tricks(tricks).await;
    broker.put("orders", 1, None);
    let running = run(&broker.config());
    running
        .until("an error", |cluster| cluster.status().error.is_some())
        .await;
    running.cluster.status().error.unwrap()
}

#[tokio::test]
async fn impossible_counts_are_refused_before_anything_is_made_of_them() {
    let huge_varint: &[u8] = &[0xff, 0xff, 0xff, 0xff, 0x0f];
    for (api, body) in [
        // Error code, then a compact array of 4 G API keys.
        (ApiKey::ApiVersions, [&[0, 0], huge_varint].concat()),
        // Throttle time, then as many brokers.
        (ApiKey::Metadata, [&[0; 4], huge_varint].concat()),
        // Throttle time, then as many results.
        (ApiKey::DescribeConfigs, [&[0; 4], huge_varint].concat()),
        // Throttle time, one result without error or name, then as many configs.
        (
            ApiKey::DescribeConfigs,
            [&[0; 4], &[2, 0, 0, 0, 2, 1][..], huge_varint].concat(),
        ),
    ] {
        let error = first_error(when(api, move || Reply::Body(Bytes::from(body.clone())))).await;
        assert!(error.contains("impossible_count"), "{api:?}: {error}");
    }
}

#[test]
fn every_cut_of_a_sound_response_is_refused() {
    for version in 1..=4 {
        let response = scripted::describe_configs_response(version);
        let check = |body: &[u8]| check_shape(ApiKey::DescribeConfigs, version, body);
        assert_eq!(check(&response), Ok(()));
        for cut in 0..response.len() {
            assert!(check(&response[..cut]).is_err(), "v{version}, {cut} bytes");
        }
    }
    for version in 10..=13 {
        let response = scripted::metadata_response(version);
        let whole = Metadata::check(response.clone(), version).unwrap();
        assert_eq!((whole.nodes().len(), whole.topics_count()), (1, 1));
        for cut in 0..response.len() {
            let check = Metadata::check(response.slice(..cut), version);
            assert!(check.is_err(), "v{version}, {cut} bytes");
        }
    }
}

#[tokio::test]
async fn half_a_frame_is_a_closed_connection() {
    for half in [vec![0, 0], vec![0, 0, 3, 232, 1, 2, 3]] {
        let error = first_error(when(ApiKey::Metadata, move || Reply::Last(half.clone()))).await;
        assert!(error.contains("closed the connection"), "{error}");
    }
}

#[tokio::test]
async fn a_response_to_another_request_is_refused() {
    let error = first_error(|asked| {
        (asked.api == ApiKey::Metadata).then(|| {
            let mut frame = vec![0, 0, 0, 5];
            frame.put_i32(asked.correlation_id + 1);
            frame.push(0);
            Reply::Raw(frame)
        })
    })
    .await;
    assert!(error.contains("unexpected_correlation_id"), "{error}");
}

#[tokio::test]
async fn a_frame_longer_than_is_taken_is_refused_at_its_length() {
    for (prefix, hint) in [
        (vec![0x7f, 0xff, 0xff, 0xff], "too_long"),
        (vec![0xff, 0xff, 0xff, 0xff], "too_long"),
        // A TLS alert, and a web server.
        (vec![0x15, 3, 3, 0, 2, 2, 70], "cluster.tls"),
        (b"HTTP/1.1 400 Bad Request".to_vec(), "HTTP server"),
    ] {
        let error = first_error(when(ApiKey::ApiVersions, move || {
            Reply::Raw(prefix.clone())
        }))
        .await;
        assert!(error.contains(hint), "{error}");
    }
}

#[tokio::test]
async fn a_close_instead_of_a_response_comes_with_its_usual_reason() {
    let error = first_error(when(ApiKey::Metadata, || Reply::Close)).await;
    assert!(error.contains("cluster.admin.sasl missing"), "{error}");
    let error = first_error(when(ApiKey::ApiVersions, || Reply::Close)).await;
    assert!(error.contains("cluster.tls missing"), "{error}");
}
