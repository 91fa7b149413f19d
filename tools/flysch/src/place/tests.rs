use super::*;

#[test]
fn places_are_sockets_of_two_kinds() {
    assert_eq!("unix:a:b".parse(), Ok(Place::Unix("a:b".into())));
    assert_eq!("tcp:[::1]:10809".parse(), Ok(Place::Tcp("[::1]:10809".into())));
    for text in
        ["", "unix:", "tcp:10809", "disk.sock", "udp:a:1", "tcp:a:", "tcp:a:65536", "tcp:a:nbd"]
    {
        assert!(text.parse::<Place>().is_err(), "{text}");
    }
}
