//! Joint claims: one claim in several limiters, granted in all of them at one instant or in none.
//!
//! # The rule
//!
//! 1. Waiting joint claims over the same *set* of limiters (or classes) form one first-come-first-served queue: the
//!    [`JointSet`]. It exists while a claim waits in it.
//! 2. Only the *front* of a set takes part in its members. The claims behind it cost the members nothing: they could not
//!    be granted before it.
//! 3. Every claim has an arrival number from each of its limiters, given while all of them are locked. So the order of two
//!    claims is the same in all limiters that they share.
//! 4. In each member the front *waits for its turn* until no plain claim with a smaller number waits there. (A debt that was
//!    charged before the claim arrived is in the level of the bucket by then.) In a limiter with classes, see
//!    `state/class_joint.rs`.
//! 5. Once it has its turn everywhere, each member computes the instant at which it could grant the cost if it held the
//!    claim now. The latest of them is the *joint instant*. The slowest member holds the claim in front of all others at
//!    once. A faster one holds it from the joint instant on, less the time that it takes to mint the cost into an empty
//!    bucket. Before that, later claims pass.
//! 6. When all members hold it and all instants have come, it is granted in all at the latest of them, and the next claim
//!    of the set becomes the front at that instant.
//!
//! The details:
//!
//! * A member holds one front: of those that want to hold it, the oldest. The others count on the instant at which that one
//!   is granted, and on the costs between. A front that holds a member goes aside for an older one that comes. A plain
//!   claim in the queue goes aside for any older front. What a claim that goes aside saved above the burst is cut.
//! * A member whose instant no clock can tell (an in-flight cap that is used up, a manual or a distributed quota, another
//!   clock) holds the front from then on until its grant. If the front could go aside again, others could take its tokens
//!   each time. While one instant is unknown, the members with known instants do not hold. Tokens of a store that complete
//!   the claim stay with it until its grant, beyond what the node may keep unused: two stores answer at different instants.
//! * A debt that was charged after the claim had arrived does not delay it: while a member holds the claim, it lends the
//!   tokens of the debt to it. But tokens that are there already when the debt is charged, or that come in at once later,
//!   pay the debt first; and with classes or a sliding quota all do.
//! * A joint claim over a key under a parent has the parent as a member too, with the sum of the costs of such keys. In a
//!   parent with classes it waits in the class of the key. While it holds the key, the proxy of the key's front claim leaves.
//!
//! This is a reservation at the instant at which the last resource is free, as in EASY backfilling: later claims pass as
//! long as they leave the reservation alone.
//!
//! # Reviews
//!
//! A *review* of a set (see [`review`]) decides all this, and acts, under the locks of all members. Limiters with a parent
//! are locked first, then the others, each by address. The lock of the set itself is the innermost.
//!
//! A review is due at the joint instant, and at once after something has changed an instant: a turn, tokens that came in, the
//! end of a pause, another quota, a cap. Each member knows the joint instants of its fronts and is not served past one of them
//! without the review, and before a review goes on, the fronts of other sets are reviewed that it made urgent. So the order of
//! events is that of their instants, also if timers are late by many of them. (A limiter cannot know of a turn in another one:
//! if it is served first, a front that waits for that is granted later than at its instant.)
//!
//! What a grant costs depends on the number of sets with waiting claims, O(log sets) in each member, and not on the number
//! of claims.
//!
//! # Why it is correct
//!
//! * *The rate law.* A front has no position before its grant. While it is held, the level is bounded by its cost as by that
//!   of any front claim; when it goes aside, the rest is cut. The joint instant decides nothing about the law: if it is
//!   wrong, a grant is late.
//! * *Order.* A set is a queue. A front passes no plain claim that arrived before it.
//! * *No deadlock.* Where one claim waits for another, the younger waits for the older, in all limiters.
//! * *No starvation, and the bound.* Take the oldest front that has its turn everywhere. Nothing is before it in any member.
//!   Each member has its tokens after the time that it takes to mint the cost into an empty bucket. So a front is granted
//!   after its turn everywhere within the mint time of its own cost and of those of the older fronts that it shares members
//!   with, if no pause, cap or change of quota comes between. For each older front that has its turn later, add the mint time
//!   of its own cost once more: it is cut what it had saved for itself until then.

mod cancelling;
mod fronts;
mod review;
mod set;

pub(crate) use cancelling::{Cancelled, cancel_in};
pub(crate) use fronts::{Front, Fronts};
pub(crate) use set::{Called, JointSet, Member, Part};

/// How many limiters a joint claim can be over.
pub(crate) const MAX_MEMBERS: usize = 32;
