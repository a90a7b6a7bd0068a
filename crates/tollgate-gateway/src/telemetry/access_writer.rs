//! The thread that writes the access log.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;

use super::access_lines::{Lines, Message};
use super::log;
use super::record;
use crate::config::log_destination::Destination;

/// Lines are written together while more of them wait, up to this many bytes.
const BATCH: usize = 64 << 10;

pub(crate) struct Writer {
    output: Box<dyn Write + Send>,
    /// `None` for the standard output.
    path: Option<PathBuf>,
    /// Set when the file has to be opened again.
    reopen: Arc<AtomicBool>,
    lines: Lines,
    /// Whether the output ends within a line, because a write failed there.
    is_torn: bool,
    /// How many dropped lines have been reported.
    reported: u64,
}

impl Writer {
    pub(crate) fn open(destination: &Destination, lines: Lines, reopen: Arc<AtomicBool>) -> io::Result<Self> {
        let (output, path): (Box<dyn Write + Send>, _) = match destination {
            Destination::Stdout => (Box::new(io::stdout()), None),
            Destination::File(path) => (Box::new(append(path)?), Some(path.clone())),
        };
        Ok(Self { output, path, reopen, lines, is_torn: false, reported: 0 })
    }

    /// Runs until all senders are gone.
    pub(crate) fn run(mut self, messages: &Receiver<Message>) {
        let (mut batch, mut flushes) = (Vec::with_capacity(BATCH), Vec::new());
        while let Ok(first) = messages.recv() {
            let mut next = Some(first);
            while let Some(message) = next {
                match message {
                    Message::Line(line) => {
                        let (target, record, end) = *line;
                        record::write(&mut batch, &target, &record, end);
                    }
                    Message::Wake => {}
                    Message::Flush(done) => flushes.push(done),
                }
                next = if batch.len() < BATCH { messages.try_recv().ok() } else { None };
            }
            if self.reopen.swap(false, Ordering::Acquire) {
                self.open_again();
            }
            self.write(&batch);
            batch.clear();
            // The other side may have stopped waiting.
            flushes.drain(..).for_each(|done| _ = done.send(()));
            self.report_dropped();
        }
    }

    fn write(&mut self, batch: &[u8]) {
        let batch = if self.is_torn && !batch.is_empty() { [b"\n", batch].concat() } else { batch.to_vec() };
        let all = newlines(&batch) - u64::from(self.is_torn && !batch.is_empty());
        let (done, failure) = write_some(&mut self.output, &batch);
        if let Some(last) = batch[..done].last() {
            let ended = newlines(&batch[..done]) - u64::from(self.is_torn);
            self.lines.note(ended, all - ended);
            self.is_torn = *last != b'\n';
        } else {
            self.lines.note(0, all);
        }
        if let Some(error) = failure {
            log::ACCESS.line(format_args!("the access log cannot be written to {}: {error}", self.place()));
        }
    }

    /// The file may have been renamed, as logrotate does. If it cannot be opened, the old one is written on.
    fn open_again(&mut self) {
        let Some(path) = &self.path else { return };
        match append(path) {
            Ok(file) => {
                self.output = Box::new(file);
                self.is_torn = false;
            }
            Err(error) => log::ACCESS.line(format_args!("{error}; the old file is written on")),
        }
    }

    fn report_dropped(&mut self) {
        let dropped = self.lines.dropped();
        if dropped > self.reported {
            let new = dropped - self.reported;
            log::ACCESS.line(format_args!("{new} lines of the access log were dropped: {} is too slow", self.place()));
            self.reported = dropped;
        }
    }

    fn place(&self) -> String {
        self.path.as_ref().map_or("the standard output".to_owned(), |path| path.display().to_string())
    }
}

fn append(path: &Path) -> io::Result<File> {
    // It contains addresses of clients.
    OpenOptions::new().append(true).create(true).mode(0o640).open(path).map_err(|error| {
        let what = format!("the access log {} cannot be opened: {error}; write another `access_log`", path.display());
        io::Error::new(error.kind(), what)
    })
}

fn newlines(text: &[u8]) -> u64 {
    text.iter().filter(|byte| **byte == b'\n').count() as u64
}

/// Writes until an error. Returns how many bytes were written.
fn write_some(output: &mut dyn Write, text: &[u8]) -> (usize, Option<io::Error>) {
    let mut done = 0;
    while done < text.len() {
        match output.write(&text[done..]) {
            Ok(0) => return (done, Some(io::ErrorKind::WriteZero.into())),
            Ok(more) => done += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (done, Some(error)),
        }
    }
    (done, output.flush().err())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Mutex, PoisonError};

    /// Takes this many bytes, and then none until it is emptied.
    #[derive(Clone)]
    struct Disk(Arc<Mutex<(Vec<u8>, usize)>>);

    impl Write for Disk {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            let mut disk = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let fits = text.len().min(disk.1 - disk.0.len());
            disk.0.extend(&text[..fits]);
            if fits == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(fits) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_costs_lines_that_are_counted_and_cuts_no_later_line() {
        let (disk, lines) = (Disk(Arc::new(Mutex::new((Vec::new(), 10)))), Lines::default());
        let mut writer = Writer {
            output: Box::new(disk.clone()),
            path: None,
            reopen: Arc::default(),
            lines: lines.clone(),
            is_torn: false,
            reported: 0,
        };
        writer.write(b"{1}\n{2}\n{3}\n{4}\n");
        writer.write(b"{5}\n");
        assert_eq!(lines.counts(), [("written", 2), ("dropped", 0), ("failed", 3)]);
        disk.0.lock().unwrap().1 = 1_000;
        writer.write(b"{6}\n{7}\n");
        writer.write(b"{8}\n");
        assert_eq!(String::from_utf8(disk.0.lock().unwrap().0.clone()).unwrap(), "{1}\n{2}\n{3\n{6}\n{7}\n{8}\n");
        assert_eq!(lines.counts(), [("written", 5), ("dropped", 0), ("failed", 3)]);
    }
}
