# The replay protected memory of a UFS device (JESD220 12.4) through Linux's generic SCSI device:
# key, counter, a write and a read with proofs, and a write without one.
use strict;

my $key = join "", map { chr } 1 .. 32;
my $nonce = "0123456789abcdef";
my $data = join "", map { chr(255 - $_) } 0 .. 255;
open(my $sg, "+<", $ARGV[0]) or die "$ARGV[0]: $!";

# SG_IO: moves 512 bytes of the security protocol ECh, of region 0.
sub security {
    my ($operation, $direction, $frame) = @_;
    my $cdb = pack("CCnx2Nx2", $operation, 0xEC, 1, 512);
    for my $try (1, 2) {
        # Of its own, as the kernel writes there.
        my $memory = pack("a512", $frame);
        my $sense = pack("x64");
        my $header = pack("llCCSLPPPLLlx4QC4SSlLLx4", ord "S", $direction, length $cdb, 64, 0, 512,
            $memory, $cdb, $sense, 20000, (0) x 12);
        ioctl($sg, 0x2285, $header) or die "SG_IO: $!";
        my ($status, $host, $driver) = unpack("x64Cx3SS", $header);
        return $memory if ($status | $host) == 0;
        # A unit tells once that it was reset.
        my $is_attention = (ord(substr $sense, 2) & 15) == 6;
        die "status $status, host $host" unless $try == 1 && $is_attention;
    }
}
sub digest {
    open(my $file, ">", "/tmp/message") or die;
    print $file $_[0];
    close $file;
    return pack("H64", `sha256sum < /tmp/message`);
}
sub hmac {
    my $padded = pack("a64", $key);
    return digest(($padded ^ "\x5c" x 64) . digest(($padded ^ "\x36" x 64) . $_[0]));
}
# frame TYPE, {NAME => VALUE}: with a proof if one is asked for.
sub frame {
    my ($type, %is) = @_;
    my $signed = pack("a256a16Nnnnn", $is{data} // "", $is{nonce} // "", $is{counter} // 0, 0,
        $is{blocks} // 0, 0, $type);
    return pack("x196a32", $is{mac} // ($is{proof} ? hmac($signed) : "")) . $signed;
}
sub put { security(0xB5, -2, $_[0]) }
# answer TYPE, RESULT: what the device has to say, with its proof.
sub answer {
    my ($type, $result, $is_proved) = @_;
    my $frame = security(0xA2, -3, "");
    my ($mac, $found, $got, $counter, $said, $kind) = unpack("x196a32a256a16Nx4nn", $frame);
    $kind == $type && $said == $result or die sprintf "type %x, result %x", $kind, $said;
    !$is_proved || $mac eq hmac(substr $frame, 228) or die "type $type: another proof";
    return ($found, $got, $counter);
}
sub counter {
    put(frame(2, nonce => $nonce));
    my (undef, $got, $counter) = answer(0x200, 0, 1);
    $got eq $nonce or die "another nonce";
    return $counter;
}

put(frame(1, mac => $key)); put(frame(5)); answer(0x100, 0);
my $counter = counter();
put(frame(3, data => $data, counter => $counter, blocks => 1, proof => 1)); put(frame(5));
answer(0x300, 0, 1);
counter() == $counter + 1 or die "the counter stays";
put(frame(4, nonce => $nonce, blocks => 1)); my ($found, $got) = answer(0x400, 0, 1);
$found eq $data && $got eq $nonce or die "other data";
# Who has no key, and who says again what was said before.
put(frame(3, data => "x", counter => $counter + 1, blocks => 1, mac => "x" x 32)); put(frame(5));
answer(0x300, 2);
put(frame(3, data => "x", counter => $counter, blocks => 1, proof => 1)); put(frame(5));
answer(0x300, 3);
counter() == $counter + 1 or die "the counter moved";
