# blktests on the disk: the tests named in $tests. Its programs, from the machine outside, are in
# /share with their libraries; what the guest has itself runs without those.
[ -e /dev/fd ] || ln -s /proc/self/fd /dev/fd
mkdir /tmp/bin
for program in $programs; do
    printf '#!/bin/bash\nLD_LIBRARY_PATH=/share/lib exec /share/%s "$@"\n' $program > /tmp/bin/$program
    chmod +x /tmp/bin/$program
done
ln -s gawk /tmp/bin/awk
export PATH=/tmp/bin:$PATH
load; find_disk
modprobe -q sg
cp -r /share/blktests /tmp/blktests; cd /tmp/blktests
printf 'TEST_DEVS=(%s)\nQUICK_RUN=1\nTIMEOUT=10\n' $d > config
./check $tests > /tmp/told 2> /tmp/errors
grep -E '\[(passed|failed|not run)\]$' /tmp/told
find results -name '*.bad' -o -name '*.dmesg' | while read -r file; do
    echo "$file:"; head -20 "$file"
done
put 1; is_there 1 && echo "disk works"
