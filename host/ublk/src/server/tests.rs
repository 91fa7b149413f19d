use super::*;

#[test]
fn tags_share_the_memory_there_is() {
    assert_eq!(buffer_for(24 << 20, 64), 256 << 10);
    assert_eq!(buffer_for(16 << 20, 64), 128 << 10);
    assert_eq!(buffer_for(1 << 20, 64), 8 << 10);
    assert_eq!(buffer_for(usize::MAX, 16 * 1024), 4096);
    let settings = Settings { id: None, queues: 2, depth: 64, recover: false };
    let memory = memory_for(&settings);
    assert_eq!(buffer_for(memory, 128), 256 << 10);
}
