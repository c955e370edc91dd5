//! Which connections get a place when there are too many.

use super::*;

const fn stranger(uid: u32) -> PlaceFor {
    PlaceFor::Stranger(StrangerSource::User(uid))
}

/// Takes places until there is none, and says how many there were.
fn fill(places: &ConnectionPlaces, whom: PlaceFor) -> Vec<crate::net::places::ConnectionPlace> {
    std::iter::from_fn(|| places.take(whom)).collect()
}

#[test]
fn strangers_and_the_allowed_leave_places_for_the_owner_and_the_owner_leaves_some_for_the_socket() {
    let places = ConnectionPlaces::new(512);
    let strangers: Vec<_> = (0..1_000).flat_map(|uid| fill(&places, stranger(uid))).collect();
    assert_eq!(strangers.len(), 128, "a quarter");
    let allowed = fill(&places, PlaceFor::Allowed);
    assert_eq!(allowed.len(), 512 - 128 - 16);
    let owner = fill(&places, PlaceFor::Owner);
    assert_eq!(owner.len(), 8);
    let socket = fill(&places, PlaceFor::Socket);
    assert_eq!(socket.len(), 8);
    drop((strangers, allowed, owner, socket));
    assert_eq!(fill(&places, PlaceFor::Socket).len(), 512, "all were given back");
}

#[test]
fn one_source_of_strangers_leaves_places_for_others() {
    let places = ConnectionPlaces::new(512);
    let noisy = fill(&places, stranger(1));
    assert_eq!(noisy.len(), 32, "a quarter of a quarter");
    let address = PlaceFor::Stranger(StrangerSource::Address("10.0.0.7".parse().unwrap()));
    assert!(places.take(address).is_some());
    drop(noisy);
    assert_eq!(fill(&places, stranger(1)).len(), 32);
}

#[test]
fn there_is_a_place_of_each_kind_however_few_there_are() {
    for connections_max in [0, 1, 2] {
        for whom in [PlaceFor::Socket, PlaceFor::Owner, PlaceFor::Allowed, stranger(1)] {
            assert!(ConnectionPlaces::new(connections_max).take(whom).is_some(), "{connections_max} places, {whom:?}");
        }
    }
}

#[test]
fn whom_a_place_is_for_depends_on_the_user() {
    let rules = Rules::new(Token::chosen(SECRET).unwrap(), 1000, [472]);
    let of_uid = |uid| rules.place_for(&rules.of_owner(Some(SocketOwner { uid, end: SocketHold::Held })));
    assert_eq!(of_uid(1000), PlaceFor::Owner);
    assert_eq!(of_uid(0), PlaceFor::Owner);
    assert_eq!(of_uid(472), PlaceFor::Allowed);
    assert_eq!(of_uid(1001), stranger(1001));
    assert_eq!(rules.place_for(&Access::Socket), PlaceFor::Socket);
    assert_eq!(rules.place_for(&rules.of_owner(None)), PlaceFor::Stranger(StrangerSource::Unknown));
}
