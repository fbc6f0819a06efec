//! The pending index: which tasks may be claimable, in memory, derived from the folder.
//!
//! It may be wrong in one direction only: an entry can be out of date, and then a claim finds
//! out and corrects it; but a claimable task is always in here (or in a shard known to be
//! unread). It can be thrown away at any time. Entries are small (a name in an arena and
//! twelve bytes), so a million tasks fit a Pi.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use crate::envelope::{Envelope, NORMAL_PRIORITY};
use crate::filter::Filter;
use crate::shard::{Entry, Place, Ref, Shard, UNREAD};
use crate::timetable::Timetable;

/// What tasks are chosen by, apart from priority. Tasks alike in it form a group.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Group {
    name: Option<String>,
    project: Option<String>,
    labels: Vec<String>,
}

fn place_in(shards: &[Shard], entry: Ref) -> Place {
    shards[usize::from(entry.shard())].entries[entry.slot()].place
}

/// All shards, and the entries ordered for claiming.
pub struct Index {
    shards: Vec<Shard>,
    ready: BTreeMap<(Reverse<i16>, u32), Vec<Ref>>,
    groups: Vec<Group>,
    group_numbers: HashMap<Group, u32>,
    delayed: Timetable,
    leased: Timetable,
    blocked: HashMap<String, Vec<Ref>>,
    damaged: Vec<(i64, Ref)>,
    news: bool,
}

impl Index {
    /// An empty index of so many shard directories.
    pub fn new(shard_count: usize) -> Index {
        let unread = Group {
            name: None,
            project: None,
            labels: Vec::new(),
        };
        Index {
            shards: (0..shard_count).map(|_| Shard::default()).collect(),
            ready: BTreeMap::new(),
            groups: vec![unread],
            group_numbers: HashMap::new(),
            delayed: Timetable::default(),
            leased: Timetable::default(),
            blocked: HashMap::new(),
            damaged: Vec::new(),
            news: false,
        }
    }

    /// The shards, for a scan to fill.
    pub fn shards_mut(&mut self) -> &mut [Shard] {
        &mut self.shards
    }

    /// Takes up entries a scan found.
    pub fn add_fresh(&mut self, shard: u8, slots: &[u32]) {
        self.news |= !slots.is_empty();
        let key = (Reverse(NORMAL_PRIORITY), UNREAD);
        self.ready
            .entry(key)
            .or_default()
            .extend(slots.iter().map(|slot| Ref::new(shard, *slot as usize)));
    }

    /// Takes up one task by name. True: it was not known.
    pub fn add(&mut self, shard: u8, name: &[u8]) -> bool {
        match self.shards[usize::from(shard)].insert(name) {
            Some((slot, true)) => {
                self.add_fresh(shard, &[slot as u32]);
                true
            }
            Some((slot, false)) => {
                // Another task of the same id may have come: nothing is known about it.
                let entry = Ref::new(shard, slot);
                let e = self.entry_mut(entry);
                let known = e.place == Place::Ready && e.group == UNREAD;
                (e.priority, e.group) = (NORMAL_PRIORITY, UNREAD);
                if !known {
                    self.set_back(entry);
                }
                false
            }
            None => false,
        }
    }

    /// The entry of a task, if it is known.
    pub fn find(&self, shard: u8, name: &[u8]) -> Option<Ref> {
        self.shards[usize::from(shard)]
            .find(name)
            .map(|slot| Ref::new(shard, slot))
    }

    /// What is known about an entry.
    pub fn place(&self, entry: Ref) -> Place {
        place_in(&self.shards, entry)
    }

    /// The task's id.
    pub fn name(&self, entry: Ref) -> String {
        let name = self.shards[usize::from(entry.shard())].name(entry.slot());
        // Only valid ids get in here, and those are ASCII.
        String::from_utf8(name.to_vec()).unwrap_or_default()
    }

    fn entry_mut(&mut self, entry: Ref) -> &mut Entry {
        &mut self.shards[usize::from(entry.shard())].entries[entry.slot()]
    }

    /// Forgets a task that is no longer pending.
    pub fn remove(&mut self, entry: Ref) {
        self.shards[usize::from(entry.shard())].remove(entry.slot());
    }

    /// Puts an entry among those worth a try.
    pub fn set_ready(&mut self, entry: Ref) {
        let e = self.entry_mut(entry);
        e.place = Place::Ready;
        let key = (Reverse(e.priority), e.group);
        self.ready.entry(key).or_default().push(entry);
    }

    /// Puts an entry that was not claimable among those worth a try.
    pub fn set_back(&mut self, entry: Ref) {
        self.news = true;
        self.set_ready(entry);
    }

    /// Notes a foreign lease; look again at `check_boot_ms`.
    pub fn set_leased(&mut self, entry: Ref, check_boot_ms: i64) {
        self.entry_mut(entry).place = Place::Leased;
        let shards = &self.shards;
        self.leased.add(check_boot_ms, entry, |e| {
            place_in(shards, e) == Place::Leased
        });
    }

    /// Notes that a task is not due before `wall_ms`.
    pub fn set_delayed(&mut self, entry: Ref, wall_ms: i64) {
        self.entry_mut(entry).place = Place::Delayed;
        let shards = &self.shards;
        self.delayed
            .add(wall_ms, entry, |e| place_in(shards, e) == Place::Delayed);
    }

    /// Notes that a task waits for `dependency`.
    pub fn set_blocked(&mut self, entry: Ref, dependency: &str) {
        self.entry_mut(entry).place = Place::Blocked;
        self.blocked
            .entry(dependency.to_owned())
            .or_default()
            .push(entry);
    }

    /// Notes an unreadable task; look again at `check_boot_ms`.
    pub fn set_damaged(&mut self, entry: Ref, check_boot_ms: i64) {
        self.entry_mut(entry).place = Place::Damaged;
        self.damaged.push((check_boot_ms, entry));
    }

    /// Notes what a read envelope says, and where the task belongs.
    pub fn learn(&mut self, entry: Ref, task: &Envelope) {
        let group = Group {
            name: task.name.clone(),
            project: task.project.clone(),
            labels: task.labels.clone(),
        };
        let number = match self.group_numbers.get(&group) {
            Some(number) => *number,
            None => {
                let number = self.groups.len() as u32;
                self.groups.push(group.clone());
                self.group_numbers.insert(group, number);
                number
            }
        };
        let e = self.entry_mut(entry);
        e.priority = task.priority;
        e.group = number;
    }

    /// Entries whose envelope was not read yet, taken out of the ready order.
    pub fn take_unread(&mut self) -> Vec<Ref> {
        let unread = self
            .ready
            .remove(&(Reverse(NORMAL_PRIORITY), UNREAD))
            .unwrap_or_default();
        unread
            .into_iter()
            .filter(|entry| self.place(*entry) == Place::Ready)
            .collect()
    }

    /// Takes a random entry of the highest wanted priority out of the ready order.
    ///
    /// Drawing at random, one by one, is the shuffle; it keeps workers off each other's tasks.
    pub fn pop(&mut self, filter: &Filter, mut random: impl FnMut() -> u64) -> Option<Ref> {
        loop {
            let key = self.choose_group(filter, &mut random)?;
            let bucket = self.ready.get_mut(&key)?;
            while !bucket.is_empty() {
                let at = (random() % bucket.len() as u64) as usize;
                let entry = bucket.swap_remove(at);
                let known = &self.shards[usize::from(entry.shard())].entries[entry.slot()];
                // References are not withdrawn when an entry moves on; they are checked here.
                if known.place == Place::Ready && (Reverse(known.priority), known.group) == key {
                    if bucket.is_empty() {
                        self.ready.remove(&key);
                    }
                    return Some(entry);
                }
            }
            self.ready.remove(&key);
        }
    }

    fn choose_group(
        &self,
        filter: &Filter,
        random: &mut impl FnMut() -> u64,
    ) -> Option<(Reverse<i16>, u32)> {
        let wanted = |key: &(Reverse<i16>, u32)| {
            filter.wants_priority(key.0 .0) && {
                let group = &self.groups[key.1 as usize];
                filter.wants(
                    group.name.as_deref(),
                    group.project.as_deref(),
                    &group.labels,
                )
            }
        };
        let first = *self.ready.keys().find(|key| wanted(key))?;
        // Among the groups of this priority, weighted by size.
        let range = (first.0, 0)..=(first.0, u32::MAX);
        let peers: Vec<_> = self
            .ready
            .range(range)
            .filter(|(key, _)| wanted(key))
            .collect();
        if peers.len() == 1 {
            return Some(first);
        }
        let total: usize = peers.iter().map(|(_, bucket)| bucket.len()).sum();
        let mut at = (random() % total.max(1) as u64) as usize;
        for (key, bucket) in peers {
            if at < bucket.len() {
                return Some(*key);
            }
            at -= bucket.len();
        }
        Some(first)
    }

    /// Makes delayed tasks ready whose time has come.
    pub fn promote_due(&mut self, wall_ms: i64) {
        while let Some(entry) = self.delayed.pop_due(wall_ms) {
            if self.place(entry) == Place::Delayed {
                self.set_back(entry);
            }
        }
    }

    /// Takes the foreign leases that are to be looked at by now.
    pub fn leases_to_check(&mut self, boot_ms: i64) -> Vec<Ref> {
        let mut due = Vec::new();
        while let Some(entry) = self.leased.pop_due(boot_ms) {
            if self.place(entry) == Place::Leased {
                due.push(entry);
            }
        }
        due
    }

    /// Makes unreadable tasks ready for a second look.
    pub fn promote_damaged(&mut self, boot_ms: i64) -> Vec<Ref> {
        let (due, later) = std::mem::take(&mut self.damaged)
            .into_iter()
            .partition(|(at, _)| *at <= boot_ms);
        self.damaged = later;
        let due: Vec<(i64, Ref)> = due;
        due.into_iter()
            .map(|(_, entry)| entry)
            .filter(|entry| self.place(*entry) == Place::Damaged)
            .collect()
    }

    /// Makes those ready that waited for a task which is now completed.
    pub fn unblock(&mut self, dependency: &str) {
        for entry in self.blocked.remove(dependency).unwrap_or_default() {
            if self.place(entry) == Place::Blocked {
                self.set_back(entry);
            }
        }
    }

    /// Makes all blocked tasks ready for another look.
    pub fn unblock_all(&mut self) {
        for (_, entries) in std::mem::take(&mut self.blocked) {
            for entry in entries {
                if self.place(entry) == Place::Blocked {
                    self.set_back(entry);
                }
            }
        }
    }

    /// Has another look soon at the delayed entries of a shard in which something happened, for
    /// when nobody tells what: they may have been given a new time.
    pub fn recheck_delayed(&mut self, shard: u8, wall_ms: i64) {
        let slots = self.shards[usize::from(shard)].entries.len();
        for slot in 0..slots {
            let entry = Ref::new(shard, slot);
            if self.place(entry) == Place::Delayed {
                self.set_delayed(entry, wall_ms);
            }
        }
    }

    /// Whether anything came, or came back, since this was last asked.
    pub fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    /// Whether anything may be worth a try.
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Makes the foreign-leased entries of a shard ready for another look: one was given back.
    pub fn recheck_shard(&mut self, shard: u8) {
        let slots = self.shards[usize::from(shard)].entries.len();
        for slot in 0..slots {
            let entry = Ref::new(shard, slot);
            if self.place(entry) == Place::Leased {
                self.set_back(entry);
            }
        }
    }

    /// When the next delayed task is due, in wall time.
    pub fn next_due_wall_ms(&self) -> Option<i64> {
        self.delayed.next()
    }

    /// When the next foreign lease or damaged task is to be looked at, in boot time.
    pub fn next_check_boot_ms(&self) -> Option<i64> {
        self.leased
            .next()
            .into_iter()
            .chain(self.damaged.iter().map(|(at, _)| *at))
            .min()
    }

    /// Whether no task is known.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.count() == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Names;

    fn counter() -> impl FnMut() -> u64 {
        let mut n = 0u64;
        move || {
            n = n
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            n >> 33
        }
    }

    #[test]
    fn every_task_is_handed_out_once() {
        let mut index = Index::new(256);
        for n in 0..1000u32 {
            index.add((n % 256) as u8, format!("t{n}").as_bytes());
        }
        let mut random = counter();
        let mut names: Vec<String> = Vec::new();
        while let Some(entry) = index.pop(&Filter::default(), &mut random) {
            names.push(index.name(entry));
            index.remove(entry);
        }
        assert_eq!(names.len(), 1000);
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 1000);
        assert!(index.is_empty());
    }

    fn names(letters: &[u8]) -> Names {
        let mut names = Names::default();
        letters.chunks(1).for_each(|letter| names.push(letter));
        names
    }

    #[test]
    fn a_rescan_keeps_what_is_known_and_drops_what_is_gone() {
        let mut shard = Shard::default();
        assert_eq!(shard.replace_with(&names(b"abc")).len(), 3);
        shard.entries[1].place = Place::Leased;
        let fresh = shard.replace_with(&names(b"bcd"));
        assert_eq!(fresh.len(), 1);
        assert!(shard.find(b"a").is_none());
        assert_eq!(
            shard.entries[shard.find(b"b").unwrap()].place,
            Place::Leased
        );
    }

    #[test]
    fn names_survive_the_compaction_of_the_arena() {
        let mut index = Index::new(1);
        for n in 0..2000 {
            index.add(0, format!("task-{n:05}").as_bytes());
        }
        for n in 0..1900 {
            let entry = index.find(0, format!("task-{n:05}").as_bytes()).unwrap();
            index.remove(entry);
        }
        for n in 1900..2000 {
            let name = format!("task-{n:05}");
            let entry = index.find(0, name.as_bytes()).unwrap();
            assert_eq!(index.name(entry), name);
        }
        assert!(index.shards[0].name_bytes() < 10_000);
    }

    #[test]
    fn higher_priorities_come_first() {
        let mut index = Index::new(1);
        let payload = || serde_json::value::RawValue::from_string("1".into()).unwrap();
        for (n, priority) in [0i16, 200, 50, 100].into_iter().enumerate() {
            index.add(0, format!("t{n}").as_bytes());
            let entry = index.find(0, format!("t{n}").as_bytes()).unwrap();
            let mut task = Envelope::bare("x", payload());
            task.priority = priority;
            index.learn(entry, &task);
            index.set_ready(entry);
        }
        let mut random = counter();
        let mut order = Vec::new();
        while let Some(entry) = index.pop(&Filter::default(), &mut random) {
            order.push(index.name(entry));
            index.remove(entry);
        }
        assert_eq!(order, ["t1", "t3", "t2", "t0"]);
    }

    #[test]
    fn leases_that_ended_long_before_their_time_are_not_kept_in_mind() {
        let mut index = Index::new(1);
        for number in 0..100_000 {
            let name = format!("t{number}");
            index.add(0, name.as_bytes());
            let entry = index.find(0, name.as_bytes()).unwrap();
            index.set_leased(entry, i64::MAX);
            index.remove(entry);
        }
        assert!(index.leased.len() <= 2048, "{}", index.leased.len());
    }
}
