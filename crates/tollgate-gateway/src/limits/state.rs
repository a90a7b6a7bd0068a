//! The state: the levels of all limits, so that a restart fills no bucket.
//!
//! The file has, in this order: the magic bytes and the version; the secret of the digests of keys; the state of the limit
//! of all; those of listed keys and of unlisted clients; since version 2 also those of listed and unlisted clients within
//! rules, and of each rule with its name. The upstreams come last, because the limits of rules
//! may be paused by what upstreams said. A file of version 2 may lack them.

use std::collections::HashMap;
use std::fs::File;
use std::hash::Hash;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::time::SystemTime;

use siphasher::sip::SipHasher13;
use tollgate::state::{KeyedState, LimiterState, StateError, StateKey};

use super::Limits;
use super::builders::KeyedLimiter;
use super::rule_client_limits::{RuleKey, SavedClients};
use super::saved_level::SavedLevel;
use crate::request::client::{Client, SECRET, Secret, new_secret};
use crate::request::name::Name;
use crate::upstream::target::Target;

const MAGIC: [u8; 8] = *b"tollgate";
/// After the magic bytes of a limiter comes the version, which is 1. No state of a single limiter begins like this.
const GATEWAY: [u8; 2] = [0xff, b'g'];
const VERSION: u8 = 2;
/// The longest name of a rule, and the longest state of one limiter: a damaged length takes no memory.
const LONGEST: u32 = 1 << 20;

/// A state that was read and checked.
pub(crate) struct State {
    secret: Secret,
    pub(crate) all: LimiterState,
    pub(crate) listed: KeyedState<Client>,
    pub(crate) unlisted: KeyedState<Client>,
    /// Of listed keys and of unlisted clients within rules; `None` in version 1.
    rule_clients: Option<[KeyedState<RuleKey>; 2]>,
    rules: Vec<(Name, LimiterState)>,
    /// `None` if the file does not say.
    pub(crate) upstreams: Option<Vec<Target>>,
}

/// The states of the limits of rules.
#[derive(Default)]
pub(crate) struct RuleStates {
    pub(crate) levels: HashMap<Name, SavedLevel>,
    pub(crate) clients: Option<[SavedClients; 2]>,
}

impl State {
    /// Reads a state file; `None` if there is none.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>, StateError> {
        match File::open(path) {
            Ok(file) => Self::of(&mut BufReader::new(file)).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(unreadable(&error)),
        }
    }

    fn of(from: &mut impl BufRead) -> Result<Self, StateError> {
        let (mut head, mut secrets) = ([0; 11], [[0; 16]; 2]);
        read(from, &mut head)?;
        let version = head[10];
        if head[..8] != MAGIC || head[8..10] != GATEWAY || !(1..=VERSION).contains(&version) {
            return Err(StateError::Foreign);
        }
        for secret in &mut secrets {
            read(from, secret)?;
        }
        // It is written twice, in place of a checksum.
        if secrets[0] != secrets[1] {
            return Err(StateError::Damaged { part: "its head" });
        }
        let all = LimiterState::from_bytes(&bytes(from)?)?.convert();
        let listed = KeyedState::read_from(from)?.convert();
        let unlisted = KeyedState::read_from(from)?.convert();
        let (rule_clients, rules, upstreams) = (None, Vec::new(), None);
        let mut state = Self { secret: secrets[0], all, listed, unlisted, rule_clients, rules, upstreams };
        if version > 1 {
            state.rule_clients = Some([KeyedState::read_from(from)?, KeyedState::read_from(from)?]);
            let mut count = [0; 4];
            read(from, &mut count)?;
            state.rules = (0..u32::from_le_bytes(count)).map(|_| read_rule(from)).collect::<Result<_, _>>()?;
            state.upstreams = read_upstreams(from)?;
        }
        Ok(state)
    }

    /// How many limits there are: of all requests, of rules, and of clients.
    pub(crate) fn count(&self) -> u64 {
        let clients: u64 = self.rule_clients.iter().flatten().map(KeyedState::len).sum();
        self.listed.len() + self.unlisted.len() + clients + self.rules.len() as u64
    }

    /// Uses the digests of keys that this state uses, unless the process has digests already.
    pub(crate) fn use_secret(&self) {
        let _ = SECRET.set(self.secret);
    }

    /// The states of the limits of rules, when the wall clock shows `now`.
    pub(crate) fn take_rules(&mut self, now: SystemTime) -> RuleStates {
        let rules = self.rules.drain(..);
        RuleStates {
            levels: rules.map(|(name, state)| (name, SavedLevel::new(state, now))).collect(),
            clients: self.rule_clients.take().map(|clients| clients.map(|state| (state, now))),
        }
    }
}

fn read_rule(from: &mut impl Read) -> Result<(Name, LimiterState), StateError> {
    let (name, state, mut sum) = (bytes(from)?, bytes(from)?, [0; 8]);
    read(from, &mut sum)?;
    let damaged = StateError::Damaged { part: "the name of a rule" };
    if u64::from_le_bytes(sum) != checksum(&name) {
        return Err(damaged);
    }
    let name = std::str::from_utf8(&name).map_err(|_| damaged)?;
    Ok((Name::new(name), LimiterState::from_bytes(&state)?))
}

/// Reads the upstreams, if the file goes on.
fn read_upstreams(from: &mut impl BufRead) -> Result<Option<Vec<Target>>, StateError> {
    if from.fill_buf().map_err(|error| unreadable(&error))?.is_empty() {
        return Ok(None);
    }
    let (urls, mut sum) = (bytes(from)?, [0; 8]);
    read(from, &mut sum)?;
    let damaged = || StateError::Damaged { part: "the upstreams" };
    if u64::from_le_bytes(sum) != checksum(&urls) {
        return Err(damaged());
    }
    let urls = str::from_utf8(&urls).map_err(|_| damaged())?;
    urls.lines().map(|url| url.parse().map_err(|_| damaged())).collect::<Result<_, _>>().map(Some)
}

/// Reads bytes after their number.
fn bytes(from: &mut impl Read) -> Result<Vec<u8>, StateError> {
    let (mut length, mut bytes) = ([0; 4], Vec::new());
    read(from, &mut length)?;
    let length = u32::from_le_bytes(length);
    if length > LONGEST {
        return Err(StateError::Damaged { part: "a length" });
    }
    from.take(length.into()).read_to_end(&mut bytes).map_err(|error| unreadable(&error))?;
    if bytes.len() < length as usize { Err(StateError::Truncated) } else { Ok(bytes) }
}

fn read(from: &mut impl Read, to: &mut [u8]) -> Result<(), StateError> {
    from.read_exact(to).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => StateError::Truncated,
        _ => unreadable(&error),
    })
}

fn unreadable(error: &io::Error) -> StateError {
    StateError::Read { kind: error.kind(), message: error.to_string() }
}

fn checksum(bytes: &[u8]) -> u64 {
    SipHasher13::new().hash(bytes)
}

/// Writes the states of all limits.
pub(crate) fn write(to: &mut impl Write, limits: &Limits) -> io::Result<()> {
    let secret = SECRET.get_or_init(new_secret);
    for part in [&MAGIC[..], &GATEWAY, &[VERSION], secret, secret] {
        to.write_all(part)?;
    }
    write_bytes(to, &limits.all.state().map_err(io::Error::other)?.to_bytes())?;
    write_keyed(to, [&limits.clients.listed, &limits.clients.unlisted])?;
    write_keyed(to, limits.rules.client_limiters())?;
    let (rules, upstreams) = {
        let _following = limits.lock_following();
        (limits.rules.levels(), limits.config().upstreams.targets())
    };
    to.write_all(&u32::try_from(rules.len()).map_err(io::Error::other)?.to_le_bytes())?;
    for (name, state) in rules {
        write_bytes(to, name.as_str().as_bytes())?;
        write_bytes(to, &state.to_bytes())?;
        to.write_all(&checksum(name.as_str().as_bytes()).to_le_bytes())?;
    }
    let urls: Vec<_> = upstreams.iter().map(Target::to_string).collect();
    let urls = urls.join("\n").into_bytes();
    write_bytes(to, &urls)?;
    to.write_all(&checksum(&urls).to_le_bytes())
}

fn write_keyed<K>(to: &mut impl Write, limiters: [&KeyedLimiter<K>; 2]) -> io::Result<()>
where
    K: StateKey + Hash + Eq + Clone,
{
    limiters.into_iter().try_for_each(|limiter| limiter.save().map_err(io::Error::other)?.write_to(to))
}

fn write_bytes(to: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    to.write_all(&u32::try_from(bytes.len()).map_err(io::Error::other)?.to_le_bytes())?;
    to.write_all(bytes)
}
