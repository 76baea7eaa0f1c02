//! A rule holds for every batch that a broker would store, at any moment: whatever the control plane knows of the topic,
//! of its partitions, or was told by a broker that is behind the others.

mod behind;
mod live;
mod stress;
