//! The clients with the most requests: a fixed number of counters for any number of clients.
//!
//! The space-saving algorithm by Metwally: a new client replaces the client with the least weight and starts with its
//! weight. So each client that sends more than a 64th of the requests has an entry. Weights decay, counts do not.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::client::Client;

const PLACES: usize = 64;
/// The factor by which each `fade` reduces a weight, once a second. A weight halves in 7 s.
const FADING: f64 = 0.9;

#[derive(Clone, Debug, Default)]
pub(crate) struct Busiest(Vec<Place>);

#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) client: Client,
    weight: f64,
    /// Since the client got this entry.
    pub(crate) admitted: u64,
    pub(crate) refused: u64,
}

impl Busiest {
    pub(crate) fn count(&mut self, client: &Client, is_admitted: bool) {
        let place = self.place(client);
        place.weight += 1.0;
        *if is_admitted { &mut place.admitted } else { &mut place.refused } += 1;
    }

    fn place(&mut self, client: &Client) -> &mut Place {
        let found = self.0.iter().position(|place| place.client == *client);
        let at = found.unwrap_or_else(|| {
            let new = |weight| Place { client: *client, weight, admitted: 0, refused: 0 };
            if self.0.len() < PLACES {
                self.0.push(new(0.0));
                return self.0.len() - 1;
            }
            let least =
                |(_, place): &(usize, &Place), (_, other): &(usize, &Place)| place.weight.total_cmp(&other.weight);
            let (at, least) = self.0.iter().enumerate().min_by(least).expect("there are places");
            self.0[at] = new(least.weight);
            at
        });
        &mut self.0[at]
    }

    pub(crate) fn fade(&mut self) {
        self.0.iter_mut().for_each(|place| place.weight *= FADING);
    }

    /// The `count` busiest clients of several counters together.
    pub(crate) fn top(several: impl IntoIterator<Item = Self>, count: usize) -> Vec<Place> {
        let mut all: HashMap<Client, Place> = HashMap::new();
        for place in several.into_iter().flat_map(|one| one.0) {
            match all.entry(place.client) {
                Entry::Vacant(entry) => _ = entry.insert(place),
                Entry::Occupied(mut entry) => entry.get_mut().add(&place),
            }
        }
        let mut places: Vec<Place> = all.into_values().collect();
        places.sort_by(|place, other| other.weight.total_cmp(&place.weight));
        places.truncate(count);
        places
    }
}

impl Place {
    fn add(&mut self, other: &Self) {
        self.weight += other.weight;
        self.admitted += other.admitted;
        self.refused += other.refused;
    }
}

#[test]
fn who_asks_most_keeps_a_place_among_any_number_of_others() {
    let address = |number: u32| Client::Address(std::net::Ipv4Addr::from(number).into());
    // Two counters, each of which sees every second request.
    let mut both = [Busiest::default(), Busiest::default()];
    for number in 100..200_100 {
        let busiest = &mut both[number as usize % 2];
        busiest.count(&address(number), true);
        if number % 20 == number % 2 {
            busiest.count(&address(1), false);
        }
        if number % 1_000 < 2 {
            busiest.fade();
        }
    }
    assert!(both.iter().all(|busiest| busiest.0.len() == PLACES));
    let top = Busiest::top(both, 3);
    assert_eq!((top.len(), &top[0].client, top[0].admitted, top[0].refused), (3, &address(1), 0, 20_000));
}
