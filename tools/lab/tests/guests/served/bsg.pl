# Queries and UIC commands to a UFS device through Linux's BSG (include/uapi/scsi/scsi_bsg_ufs.h).
use strict;

open(my $bsg, "+<", $ARGV[0]) or die "$ARGV[0]: $!";

# SG_IO of version 4: a request of 36 bytes, and what it brings.
sub transact {
    my ($request, $length) = @_;
    # Of their own, as the kernel writes there.
    my ($reply, $data) = (pack("x64"), pack("x" . ($length || 1)));
    my $header = pack("lLLLPQLLLLPLLLLQPLLQx56", ord "Q", 0, 2, length $request, $request, 0, 0, 0,
        0, length $reply, $reply, 0, 0, 0, $length, 0, $data, 20000, 0, 0);
    ioctl($bsg, 0x2285, $header) or die "SG_IO: $!";
    my ($result) = unpack("l", $reply);
    $result == 0 or die "result $result";
    return (substr($reply, 8), $data);
}
# query FUNCTION, OPCODE, IDN, VALUE, LENGTH: the value of the answer, and its descriptor.
sub query {
    my ($function, $opcode, $idn, $value, $length) = @_;
    my $upiu = pack("Cx4Cx6CCCCx2nNx8", 0x16, $function, $opcode, $idn, 0, 0, $length, $value);
    my ($answer, $data) = transact(pack("L", 0x16) . $upiu, $length);
    my ($code, $response, $got, $now) = unpack("Cx5C x5 x6 n N", $answer);
    $code == 0x36 && $response == 0 or die sprintf "opcode %x: %x, %x", $opcode, $code, $response;
    return ($now, substr($data, 0, $length));
}

# The device descriptor (idn 0) and a string of it (its product's name).
my (undef, $device) = query(1, 1, 0, 0, 0x59);
my ($length, $idn) = unpack("CC", $device);
$length == 0x59 && $idn == 0 or die "a device descriptor of $length bytes, $idn";
print "specification ", unpack("H4", substr $device, 0x10), "\n";
# An attribute that may be written: dExceptionEventControl (0Dh), there and back.
my ($before) = query(1, 3, 0x0D, 0, 0);
query(0x81, 4, 0x0D, 0, 0);
(query(1, 3, 0x0D, 0, 0))[0] == 0 or die "the attribute stays";
query(0x81, 4, 0x0D, $before, 0);
(query(1, 3, 0x0D, 0, 0))[0] == $before or die "the attribute is lost";
# A flag: fBackgroundOpsEn (04h), set, cleared, turned over.
for (my @way = ([6, 1], [7, 0], [8, 1], [8, 0]); my $step = shift @way;) {
    query(0x81, $step->[0], 4, 0, 0);
    (query(1, 5, 4, 0, 0))[0] == $step->[1] or die "the flag after opcode $step->[0]";
}
# What is not there is refused: the attribute FEh.
eval { query(1, 3, 0xFE, 0, 0) };
$@ or die "an attribute that does not exist";
# DME_GET (01h) of PA_ActiveTxDataLanes (1560h), as a UIC command: result code and value.
my ($answer) = transact(pack("Lx12LLLLx4", 0x1F, 1, 0x15600000, 0, 0), 0);
my ($result, $lanes) = unpack("x20LL", $answer);
($result & 255) == 0 && ($lanes == 1 || $lanes == 2) or die "DME_GET: $result, $lanes";
print "queries work\n";
