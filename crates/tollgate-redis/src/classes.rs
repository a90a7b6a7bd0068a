//! The classes of limiters: a key beside that of the store has what they need on all nodes.

use super::RedisStore;
use super::reply::{error_reply, reply_kind};
use super::server::{is_broken, silent, unreachable};
use redis::RedisError;
use std::time::Instant;
use tokio::time::timeout;
use tollgate::distributed::{ClassDemand, ClassReport, ReplyKind, StoreError};

pub(super) const SCRIPT: &str = include_str!("classes.lua");

impl RedisStore {
    /// Sends a report, once: the next one replaces it.
    pub(super) async fn report_once(&self, report: &ClassReport) -> Result<Vec<ClassDemand>, StoreError> {
        let shard = self.server.shard(&self.key);
        let _permit = shard.breaker.admit(self.answer_timeout).await?;
        let mut link = self.server.link(&shard, &self.key, self.answer_timeout).await?;
        let sent = Instant::now();
        let answered = timeout(self.answer_timeout, async {
            match self
                .report_command("EVALSHA", self.class_script.get_hash(), report)
                .query_async(&mut link.connection)
                .await
            {
                Err(error) if RedisError::code(&error) == Some("NOSCRIPT") => {
                    self.tally.count_error_reply(ReplyKind::NoScript);
                    self.report_command("EVAL", SCRIPT, report).query_async(&mut link.connection).await
                }
                answered => answered,
            }
        });
        let answered: Result<String, RedisError> =
            answered.await.map_err(|_| silent(self.answer_timeout, sent.elapsed()))?;
        match answered {
            Ok(text) => {
                shard.breaker.note_answer();
                let message =
                    || "the reply to a report is no demand: check that no other script uses the key".to_owned();
                ClassDemand::from_text(&text).ok_or_else(|| StoreError::Refused(message()))
            }
            Err(error) => {
                if is_broken(&error) {
                    self.server.broke(&link);
                }
                Err(match reply_kind(&error) {
                    Some(kind) => {
                        self.tally.count_error_reply(kind);
                        error_reply(kind, &error)
                    }
                    None => unreachable(&error),
                })
            }
        }
    }

    fn report_command(&self, verb: &str, script: &str, report: &ClassReport) -> redis::Cmd {
        let mut command = redis::cmd(verb);
        command.arg(script).arg(1).arg(format!("{}:classes", self.key));
        command.arg(format!("{:032x}", report.node)).arg(report.ttl).arg(ClassDemand::to_text(&report.classes));
        command
    }
}
