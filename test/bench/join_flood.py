#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does a distant node join while strangers flood rank 0 with connections that send nothing?
usage: join_flood.py ECHELON [TRIES [DELAY_MS [RATE...]]]
Two nodes on this machine; a forwarder between them holds every byte back for DELAY_MS in each direction. Prints for each rate,
without a key and with one, how many tries joined within 20 s, and how many connections a second were really made."""
import asyncio, errno, os, socket, sys, tempfile

echelon = sys.argv[1]
tries = int(sys.argv[2]) if len(sys.argv) > 2 else 3
delay = float(sys.argv[3]) / 1000 if len(sys.argv) > 3 else 0.1
rates = [int(a) for a in sys.argv[4:]] or [100, 300, 1000]


async def forward(reader, writer):
    loop = asyncio.get_running_loop()
    try:
        while data := await reader.read(65536):
            loop.call_later(delay, writer.write, data)
    except OSError:
        pass
    loop.call_later(delay, writer.close)


async def flood(port, rate, made):
    """By the clock, so that a busy moment is made up for."""
    held, due = [], asyncio.get_running_loop().time()
    while True:
        stranger = socket.socket()
        stranger.setblocking(False)
        made[0] += stranger.connect_ex(("127.0.0.1", port)) in (0, errno.EINPROGRESS)
        held.append(stranger)
        if len(held) > 64:
            held.pop(0).close()
        due += 1 / rate
        await asyncio.sleep(max(0, due - asyncio.get_running_loop().time()))


async def attempt(rate, key):
    common = ["train", "--data", "glyphs", "--model", "lenet5", "--world", "2", "--steps", "2", "--eval-every", "0", "--join-timeout", "20"] + key
    quiet = asyncio.subprocess.DEVNULL
    first = await asyncio.create_subprocess_exec(echelon, *common, "--rank", "0", "--coordinator", "127.0.0.1:0", stdout=quiet,
                                                 stderr=asyncio.subprocess.PIPE)
    port = None
    while port is None:
        line = (await first.stderr.readline()).decode()
        if not line:
            return False, 0
        at = line.find("127.0.0.1:")
        if at >= 0:
            port = int("".join(c for c in line[at + 10:at + 16].split()[0] if c.isdigit()))
    drain = asyncio.create_task(first.stderr.read())

    async def serve(reader, writer):
        try:
            there, back = await asyncio.open_connection("127.0.0.1", port)
        except OSError:   # rank 0 has given up
            return writer.close()
        await asyncio.gather(forward(reader, back), forward(there, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    made, began = [0], asyncio.get_running_loop().time()
    flooding = asyncio.create_task(flood(port, rate, made))
    await asyncio.sleep(0.5)
    through = server.sockets[0].getsockname()[1]
    second = await asyncio.create_subprocess_exec(echelon, *common, "--rank", "1", "--coordinator", f"127.0.0.1:{through}", stdout=quiet,
                                                  stderr=quiet)
    status = await second.wait()
    flooding.cancel()
    if first.returncode is None:
        first.terminate()
    await first.wait()
    await drain
    server.close()
    return status == 0, made[0] / (asyncio.get_running_loop().time() - began)


async def main():
    with tempfile.NamedTemporaryFile() as key:
        key.write(os.urandom(32))
        key.flush()
        for rate in rates:
            for name, option in (("no key", []), ("key", ["--key", key.name])):
                joined, made = 0, 0.0
                for _ in range(tries):
                    ok, really = await attempt(rate, option)
                    joined += ok
                    made += really / tries
                print(f"{rate}/s asked, {made:.0f}/s made, {1000 * delay:.0f} ms, {name}: {joined} of {tries} joined", flush=True)

asyncio.run(main())
