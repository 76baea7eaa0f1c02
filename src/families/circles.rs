//! Families that need each other.

use std::collections::HashSet;
use std::sync::Arc;

use super::Families;

impl Families {
    /// Families that need each other: a main topic that is, at some remove, a member of itself. Each would have to take
    /// more than the other. Every circle once, as the topics along it.
    pub fn circles(&self) -> Vec<Vec<Arc<str>>> {
        let mut circles = Vec::new();
        let mut done: HashSet<usize> = HashSet::new();
        for at in 0..self.families.len() {
            self.circle_from(at, &mut Vec::new(), &mut done, &mut circles);
        }
        circles
    }

    /// Goes along members that have families of their own; a family is entered once.
    fn circle_from(
        &self,
        at: usize,
        path: &mut Vec<usize>,
        done: &mut HashSet<usize>,
        circles: &mut Vec<Vec<Arc<str>>>,
    ) {
        if let Some(start) = path.iter().position(|earlier| *earlier == at) {
            let along = path.iter().skip(start);
            let along = along.filter_map(|at| Some(Arc::clone(&self.families.get(*at)?.main)));
            circles.push(along.collect());
            return;
        }
        let Some(family) = self.families.get(at).filter(|_| done.insert(at)) else {
            return;
        };
        path.push(at);
        for member in &family.members {
            if let Some(next) = self.by_main.get(&member.topic) {
                self.circle_from(*next, path, done, circles);
            }
        }
        path.pop();
    }
}
