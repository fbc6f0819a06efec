//! Which tasks a claim wants.

use crate::envelope::Envelope;

/// Which tasks a claim wants. Empty: all.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Only this project.
    pub project: Option<String>,
    /// All of these labels.
    pub labels: Vec<String>,
    /// No lower priority.
    pub min_priority: Option<i16>,
    /// No higher priority.
    pub max_priority: Option<i16>,
    /// One of these names; the empty string matches a task without one.
    pub names: Option<Vec<String>>,
}

impl Filter {
    /// Whether every task passes.
    pub fn is_empty(&self) -> bool {
        self.project.is_none()
            && self.labels.is_empty()
            && self.min_priority.is_none()
            && self.max_priority.is_none()
            && self.names.is_none()
    }

    /// Whether a task of this name, project and labels passes.
    pub fn wants(&self, name: Option<&str>, project: Option<&str>, labels: &[String]) -> bool {
        (self.project.is_none() || self.project.as_deref() == project)
            && self.labels.iter().all(|label| labels.contains(label))
            && self.names.as_ref().is_none_or(|names| {
                names
                    .iter()
                    .any(|wanted| wanted == name.unwrap_or_default())
            })
    }

    /// Whether a task of this priority passes.
    pub fn wants_priority(&self, priority: i16) -> bool {
        self.min_priority.is_none_or(|least| priority >= least)
            && self.max_priority.is_none_or(|most| priority <= most)
    }

    /// Whether the task passes.
    pub fn matches(&self, task: &Envelope) -> bool {
        self.wants_priority(task.priority)
            && self.wants(task.name.as_deref(), task.project.as_deref(), &task.labels)
    }
}
