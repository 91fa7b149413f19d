use super::*;
use flysch_api::data::Data;
use flysch_api::machine::DmaSlice;

fn disk(path: &Path, options: FileOptions) -> Result<File, OpenError> {
    File::open(path, FileOptions { memory_len: 1 << 20, ..options }, RealClock::new())
}

fn one(file: &mut File, operation: Operation, offset: u64) -> Result<(), BlockError> {
    let length = if operation == Operation::Flush { 0 } else { 4096 };
    let data = matches!(operation, Operation::Read | Operation::Write);
    let buffer = DmaSlice { address: 0, len: if data { 4096 } else { 0 } };
    let data = Data::One(buffer);
    let accepted = Instant::START;
    let force_unit_access = operation == Operation::Write;
    let request = Request {
        operation,
        force_unit_access,
        offset,
        length,
        data,
        crypto: None,
        token: 7,
        accepted,
    };
    file.submit(&request, accepted).map_err(|_| BlockError::Gone)?;
    file.ring(accepted);
    let completion = file.poll(file.clock.now()).ok_or(BlockError::Gone)?;
    assert_eq!(completion.token, 7);
    completion.result
}

#[test]
fn data_goes_to_the_file_and_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk.img");
    let options = FileOptions { create_size: Some(1 << 20), ..FileOptions::default() };
    let mut file = disk(&path, options).unwrap();
    assert_eq!((file.geometry().bytes(), file.geometry().read_only), (1 << 20, false));
    file.memory().fill(0, 4096, 0xA5);
    one(&mut file, Operation::Write, 8192).unwrap();
    one(&mut file, Operation::Flush, 0).unwrap();
    let content = std::fs::read(&path).unwrap();
    assert!(content[8192..12_288].iter().all(|&byte| byte == 0xA5) && content[8191] == 0);
    file.memory().fill(0, 4096, 0);
    one(&mut file, Operation::Read, 8192).unwrap();
    assert_eq!(file.memory().load32(0), 0xA5A5_A5A5);
    one(&mut file, Operation::Delete, 8192).unwrap();
    assert_eq!(std::fs::read(&path).unwrap()[8192], 0);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 1 << 20);
}

#[test]
fn errors_name_the_file_and_the_cause() {
    let folder = tempfile::tempdir().unwrap();
    let told = |path: &Path| disk(path, FileOptions::default()).unwrap_err().to_string();
    assert!(told(&folder.path().join("none")).contains("none: No such file"));
    assert!(told(folder.path()).contains("directory"));
    let small = folder.path().join("small");
    std::fs::write(&small, [0; 4095]).unwrap();
    assert!(told(&small).contains("4095 bytes are less than one block"), "{}", told(&small));
    let options = FileOptions { block_size: 1000, ..FileOptions::default() };
    assert!(disk(&small, options).unwrap_err().to_string().contains("power of two"));
}

#[test]
fn a_file_that_shrank_gives_an_error_not_data() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk.img");
    let options = FileOptions { create_size: Some(1 << 20), ..FileOptions::default() };
    let mut file = disk(&path, options).unwrap();
    SystemFile::options().write(true).open(&path).unwrap().set_len(4096).unwrap();
    assert_eq!(one(&mut file, Operation::Read, 8192), Err(BlockError::OutOfRange));
}
