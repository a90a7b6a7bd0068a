//! One rule: which values of a descriptor it counts apart, and under which name.

use crate::bucket::{Bucket, Maker, Saved};
use crate::key::hash;
use crate::meter::{Meter, Meters};
use crate::problem::Place;
use crate::proto::Entry;
use crate::terms::Terms;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

/// The longest key that is kept as it is, in bytes, and the longest value in the name of a metric, in characters.
const LONGEST_KEY: usize = 256;

/// One level of a rule: a key, and which of its values match.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Level {
    /// The key.
    pub key: String,
    /// The value as it is in the file, with its `*`; empty for any value.
    pub value: String,
    /// Whether each value has a bucket of its own.
    pub is_open: bool,
}

/// What a rule matches.
#[derive(Clone, Debug)]
pub struct Path {
    /// The domain.
    pub domain: Arc<str>,
    /// The levels, from the outermost.
    pub levels: Vec<Level>,
    /// The levels whose values are parts of the metric's name.
    pub named: Vec<usize>,
}

/// A rule with its limiter.
#[derive(Debug)]
pub struct Rule {
    /// The domain.
    pub domain: Arc<str>,
    /// The levels, from the outermost.
    pub levels: Vec<Level>,
    /// What the rule demands.
    pub terms: Terms,
    /// Where the file has it.
    pub place: Place,
    meter: OnceLock<Arc<Meter>>,
    /// The levels whose values are parts of the metric's name.
    named: Vec<usize>,
    open: Vec<usize>,
    /// Rules of several configurations share the inner lock: a request that began before a reload may make the limiter.
    bucket: OnceLock<Arc<OnceLock<Bucket>>>,
}

impl Rule {
    /// Creates a rule, which has no meter yet.
    pub fn new(path: Path, terms: Terms, place: Place) -> Self {
        let Path { domain, levels, named } = path;
        let open = (0..levels.len()).filter(|&index| levels[index].is_open).collect();
        Self { domain, levels, terms, place, meter: OnceLock::new(), named, open, bucket: OnceLock::new() }
    }

    /// Counts the requests of the rule among these meters. Called once all of its configuration is known to be good.
    pub fn count_among(&self, meters: &Meters) {
        self.meter.get_or_init(|| meters.get(&self.metric_name(None)));
    }

    /// Returns what requests count under. If a level names its value, they count under others [within](Meter::within) it.
    pub fn own_meter(&self) -> &Arc<Meter> {
        self.meter.get_or_init(Arc::default)
    }

    /// Returns the key of a descriptor's bucket. It is the value if the rule leaves one level open; several values have
    /// their lengths in front, so that no two lists of values have the same key. A long key is shortened, and ends with a
    /// hash of all of it, so that a client cannot fill the memory.
    pub fn key<'e>(&self, entries: &'e [Entry]) -> Cow<'e, [u8]> {
        let key = match &*self.open {
            [] => Cow::Borrowed(&[][..]),
            [one] => Cow::Borrowed(&entries[*one].value[..]),
            several => {
                let mut key = Vec::with_capacity(several.iter().map(|&index| 4 + entries[index].value.len()).sum());
                for &index in several {
                    let value = &entries[index].value;
                    key.extend_from_slice(&(value.len() as u32).to_le_bytes());
                    key.extend_from_slice(value);
                }
                Cow::Owned(key)
            }
        };
        if key.len() > LONGEST_KEY { Cow::Owned(shortened(&key)) } else { key }
    }

    /// Returns the key of a bucket as people read it.
    pub fn show_key(&self, key: &[u8]) -> String {
        if self.open.len() < 2 {
            return String::from_utf8_lossy(key).into_owned();
        }
        let (mut values, mut rest) = (Vec::new(), key);
        while let Some((length, after)) = rest.split_first_chunk::<4>() {
            let (value, after) = after.split_at((u32::from_le_bytes(*length) as usize).min(after.len()));
            values.push(String::from_utf8_lossy(value));
            rest = after;
        }
        values.join(", ")
    }

    /// Returns the meter under which a descriptor counts.
    pub fn meter(&self, entries: &[Entry], meters: &Meters) -> Cow<'_, Arc<Meter>> {
        if self.named.is_empty() {
            return Cow::Borrowed(self.own_meter());
        }
        Cow::Owned(meters.get_dynamic(&self.metric_name(Some(entries)), self.own_meter()))
    }

    /// Returns the limiter. The first request makes it: a file may have many rules that no request matches.
    pub fn bucket(&self, maker: &Maker) -> &Bucket {
        self.bucket.get_or_init(Arc::default).get_or_init(|| {
            let maker = self.maker(maker);
            let bucket = match &maker.store {
                Some(store) => {
                    let levels = self.levels.iter().flat_map(|level| [&*level.key, &*level.value]);
                    let path = [&*self.domain].into_iter().chain(levels);
                    store.limiter(path, &self.terms, maker.most_values).map(Bucket::Shared)
                }
                None => Bucket::new(&self.terms, &maker, None),
            };
            // The file was checked by making the limiter of each rule.
            bucket.expect("the file was checked")
        })
    }

    /// Returns the limiter if there is one.
    pub fn made_bucket(&self) -> Option<&Bucket> {
        self.bucket.get()?.get()
    }

    /// Takes over the limiter of the same rule with the same limits of an earlier configuration, with all levels and waiting
    /// requests; of a rule that waits in another way, the levels.
    pub fn adopt(&self, earlier: &Self, maker: &Maker) {
        if self.terms.limits != earlier.terms.limits {
            return;
        }
        if self.terms.waits_alike(&earlier.terms) {
            // A new rule has no limiter yet.
            let _ = self.bucket.set(Arc::clone(earlier.bucket.get_or_init(Arc::default)));
        } else if let Some(Ok(saved)) = earlier.made_bucket().map(Bucket::save) {
            self.restore(saved, maker);
        }
    }

    /// Continues from saved levels. Returns false if these are the levels of other limits, the rule has a limiter, or a
    /// store keeps its levels.
    pub fn restore(&self, saved: Saved, maker: &Maker) -> bool {
        if maker.store.is_some() {
            return false;
        }
        let bucket = Bucket::new(&self.terms, &self.maker(maker), Some(saved));
        bucket.is_ok_and(|bucket| self.bucket.get_or_init(Arc::default).set(bucket).is_ok())
    }

    /// A rule without open levels has one key.
    fn maker(&self, maker: &Maker) -> Maker {
        Maker { most_values: if self.open.is_empty() { 1 } else { maker.most_values }, ..maker.clone() }
    }

    /// Returns the name of the metric, with the values of a request where the rule says so. Some readers of metrics split lines
    /// at control characters. All but the line feed, which is escaped, become spaces: names that read alike have one meter.
    pub fn metric_name(&self, entries: Option<&[Entry]>) -> Vec<String> {
        let mut name = vec![self.domain.to_string()];
        for (index, level) in self.levels.iter().enumerate() {
            let value = match entries {
                Some(entries) if self.named.contains(&index) => {
                    String::from_utf8_lossy(&entries[index].value).chars().take(LONGEST_KEY).collect()
                }
                _ => level.value.clone(),
            };
            name.push(if value.is_empty() { level.key.clone() } else { format!("{}_{value}", level.key) });
        }
        let is_split = |c: char| c.is_control() && c != '\n';
        name.iter_mut().filter(|part| part.contains(is_split)).for_each(|part| *part = part.replace(is_split, " "));
        name
    }

    /// Returns the rule as the page and logs show it.
    pub fn title(&self) -> String {
        self.metric_name(None).join(".")
    }
}

fn shortened(key: &[u8]) -> Vec<u8> {
    let hash = hash(key);
    [&key[..LONGEST_KEY - hash.len()], hash.as_bytes()].concat()
}
