//! The state file: the levels of all limits, so that a restart fills no bucket.
//!
//! It is written every `state_every` and at the shutdown: to a temporary file beside it, which is synced and then
//! renamed. So the file is the old state or the new one, whenever the process or the machine stops.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::MissedTickBehavior;
use tollgate::state::{KeyedState, LimiterState, StateError, StateKey};

use super::client::{Client, SECRET, Secret};
use super::limits::Limits;
use super::log;
use super::name::Name;

const MAGIC: [u8; 8] = *b"tollgate";
/// After the magic bytes of a limiter comes the version, which is 1. No state of a single limiter begins like this.
const GATEWAY: [u8; 3] = [0xff, b'g', 1];

/// A state that was read and checked.
pub(crate) struct State {
    secret: Secret,
    pub(crate) all: LimiterState,
    pub(crate) listed: KeyedState<Client>,
    pub(crate) unlisted: KeyedState<Client>,
}

impl State {
    /// Reads a state file; `None` if there is none.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>, StateError> {
        let unreadable = |error: io::Error| StateError::Read { kind: error.kind(), message: error.to_string() };
        match File::open(path) {
            Ok(file) => Self::of(&mut BufReader::new(file)).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(unreadable(error)),
        }
    }

    fn of(from: &mut impl Read) -> Result<Self, StateError> {
        let (mut head, mut secrets, mut length) = ([0; 11], [[0; 16]; 2], [0; 4]);
        read(from, &mut head)?;
        if head[..8] != MAGIC || head[8..] != GATEWAY {
            return Err(StateError::Foreign);
        }
        for secret in &mut secrets {
            read(from, secret)?;
        }
        // It is written twice, in place of a checksum.
        if secrets[0] != secrets[1] {
            return Err(StateError::Damaged { part: "its head" });
        }
        read(from, &mut length)?;
        let mut all = Vec::new();
        let count = from.take(u32::from_le_bytes(length).into()).read_to_end(&mut all);
        count.map_err(|error| StateError::Read { kind: error.kind(), message: error.to_string() })?;
        Ok(Self {
            secret: secrets[0],
            all: LimiterState::from_bytes(&all)?.convert(),
            listed: KeyedState::read_from(from)?.convert(),
            unlisted: KeyedState::read_from(from)?.convert(),
        })
    }

    /// Uses the digests of keys that this state uses, unless the process has digests already.
    pub(crate) fn use_secret(&self) {
        let _ = SECRET.set(self.secret);
    }
}

fn read(from: &mut impl Read, to: &mut [u8]) -> Result<(), StateError> {
    from.read_exact(to).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => StateError::Truncated,
        kind => StateError::Read { kind, message: error.to_string() },
    })
}

/// Writes the states of `limits`.
fn write(limits: &Limits, to: &mut impl Write) -> io::Result<()> {
    let secret = SECRET.get_or_init(super::client::new_secret);
    let all = limits.all.state().map_err(io::Error::other)?.to_bytes();
    let length = u32::try_from(all.len()).map_err(io::Error::other)?;
    for part in [&MAGIC[..], &GATEWAY, secret, secret, &length.to_le_bytes(), &all] {
        to.write_all(part)?;
    }
    for keyed in [&limits.each.listed, &limits.each.unlisted] {
        keyed.save().map_err(io::Error::other)?.write_to(to)?;
    }
    Ok(())
}

/// Saves the state of the limits to a file.
#[derive(Clone)]
pub(crate) struct Saver {
    limits: Arc<Limits>,
    path: Arc<Path>,
    /// Locked while the file is written: two writers would share the temporary file.
    one_at_a_time: Arc<Mutex<()>>,
}

impl Saver {
    pub(crate) fn new(limits: Arc<Limits>, path: &Path) -> Self {
        Self { limits, path: path.into(), one_at_a_time: Arc::default() }
    }

    /// Saves now. Returns when the file is on the disk.
    pub(crate) fn save(&self) -> io::Result<()> {
        let _one_at_a_time = self.one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
        let temporary = temporary(&self.path);
        // It contains addresses, and digests of keys with their secret.
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        let mut file = BufWriter::new(file);
        write(&self.limits, &mut file)?;
        file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        fs::rename(&temporary, &self.path)?;
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder)?.sync_all()
    }

    /// Saves every `every`, until it is dropped. A failure is logged, and the file stays as it is.
    pub(crate) async fn run(self, every: Duration) {
        let mut turns = tokio::time::interval(every);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        turns.tick().await;
        loop {
            turns.tick().await;
            let saver = self.clone();
            if let Ok(Err(error)) = tokio::task::spawn_blocking(move || saver.save()).await {
                log::CONNECTIONS.line(format_args!("{}", self.failed(&error)));
            }
        }
    }

    pub(crate) fn failed(&self, error: &io::Error) -> String {
        format!("the state cannot be saved to {}: {error}", self.path.display())
    }
}

fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

impl StateKey for Client {
    fn write(&self, to: &mut Vec<u8>) {
        match self {
            Self::Listed(name) => {
                to.push(0);
                to.extend(name.as_str().as_bytes());
            }
            Self::Key { digest, shown } => {
                to.push(1);
                digest.iter().for_each(|half| half.write(to));
                to.extend(shown);
            }
            Self::Address(address) => {
                to.push(2);
                address.write(to);
            }
            Self::Overflow => to.push(3),
        }
    }

    fn read(from: &[u8]) -> Option<Self> {
        let (kind, rest) = from.split_first()?;
        Some(match kind {
            0 => Self::Listed(Name::new(std::str::from_utf8(rest).ok()?)),
            1 => {
                let (first, rest) = rest.split_at_checked(8)?;
                let (second, shown) = rest.split_at_checked(8)?;
                Self::Key { digest: [u64::read(first)?, u64::read(second)?], shown: shown.try_into().ok()? }
            }
            2 => Self::Address(IpAddr::read(rest)?),
            3 if rest.is_empty() => Self::Overflow,
            _ => return None,
        })
    }
}

#[test]
fn clients_are_read_as_they_were_written() {
    let clients = [
        Client::Listed(Name::new("shop")),
        Client::Key { digest: [1, u64::MAX], shown: *b"abcd" },
        Client::Address([127, 0, 0, 1].into()),
        Client::Address([1, 2, 3, 4, 5, 6, 7, 8].into()),
        Client::Overflow,
    ];
    for client in clients {
        let mut bytes = Vec::new();
        client.write(&mut bytes);
        assert_eq!(Client::read(&bytes), Some(client));
    }
    assert_eq!([&[][..], &[1, 2], &[2, 1], &[3, 0], &[9]].map(Client::read), [None; 5]);
}
