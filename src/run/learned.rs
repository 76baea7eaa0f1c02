//! What a running proxy learns, without its listeners: for commands that judge as it would.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio_util::sync::CancellationToken;

use super::{build, families};
use crate::config::Config;
use crate::net::deadline_in;
use crate::proxy::Shared;

/// How long the first reading of topics and their limits may take.
const FIRST_READING: Duration = Duration::from_secs(60);
/// An error that stays so long is believed.
const BELIEVED: Duration = Duration::from_secs(10);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// Builds what sessions share, reads topics, limits and families, and then acts; all of it on this thread.
///
/// # Errors
/// What could not be done, in words.
pub fn with_learned<T>(
    config: &Config,
    act: impl AsyncFnOnce(&Arc<Shared>) -> Result<T, String>,
) -> Result<T, String> {
    let shared = build(config).map_err(|error| error.to_string())?;
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let done = runtime.block_on(async {
        let shutdown = CancellationToken::new();
        let learning = async {
            tokio::join!(
                shared.cluster.run(shutdown.clone()),
                families::follow(Arc::clone(&shared), shutdown.clone())
            )
        };
        let work = async {
            until_learned(&shared).await?;
            act(&shared).await
        };
        tokio::select! {
            done = work => done,
            _ = learning => Err("the control plane has ended".to_owned()),
        }
    });
    if let Some(claims) = &shared.claims {
        claims.finish();
    }
    done
}

async fn until_learned(shared: &Arc<Shared>) -> Result<(), String> {
    let (deadline, believed) = (deadline_in(FIRST_READING), deadline_in(BELIEVED));
    loop {
        let readiness = shared.readiness(false);
        if readiness.why_not.is_empty() {
            return Ok(());
        }
        let now = tokio::time::Instant::now();
        let is_failing = shared.cluster.status().error.is_some() && now >= believed;
        if is_failing || now >= deadline {
            return Err(readiness.why_not.join("; "));
        }
        tokio::time::sleep(LOOK).await;
    }
}
