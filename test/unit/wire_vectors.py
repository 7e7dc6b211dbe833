#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Makes the frames shown in net/WIRE.md, from that page's words and the RFCs alone: nothing of Echelon's code is used.
# Prints them as WIRE.md has them; test_net_keys.c holds the code against the page.
import hashlib, hmac, struct

def hkdf_extract(salt, secret): return hmac.new(salt, secret, hashlib.sha256).digest()
def hkdf_expand(key, info): return hmac.new(key, info + b'\1', hashlib.sha256).digest()   # one block is enough

def chacha20_block(key, counter, nonce):   # RFC 8439, 2.3
    rot = lambda x, n: (x << n | x >> (32 - n)) & 0xffffffff
    s = list(struct.unpack('<4I', b'expand 32-byte k') + struct.unpack('<8I', key) + (counter,) + struct.unpack('<3I', nonce))
    w = s[:]
    def quarter(a, b, c, d):
        for x, y, z, n in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            w[x] = (w[x] + w[y]) & 0xffffffff
            w[z] = rot(w[z] ^ w[x], n)
    for _ in range(10):
        for i in range(4): quarter(i, 4 + i, 8 + i, 12 + i)
        for i in range(4): quarter(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4)
    return struct.pack('<16I', *((a + b) & 0xffffffff for a, b in zip(w, s)))

def poly1305(key, message):   # 2.5
    r = int.from_bytes(key[:16], 'little') & 0x0ffffffc0ffffffc0ffffffc0fffffff
    total = 0
    for i in range(0, len(message), 16):
        total = (total + int.from_bytes(message[i:i + 16] + b'\1', 'little')) * r % (2**130 - 5)
    return ((total + int.from_bytes(key[16:], 'little')) % 2**128).to_bytes(16, 'little')

def seal(key, sequence, head, body):   # 2.8, the body as it is
    pad = lambda x: b'\0' * (-len(x) % 16)
    one_time = chacha20_block(key, 0, struct.pack('<IQ', 0, sequence))[:32]
    return poly1305(one_time, head + pad(head) + body + pad(body) + struct.pack('<QQ', len(head), len(body)))

HELLO, REFUSE, PEERS, CONNECTED, READY, DATA, CREDIT, GOODBYE, CHALLENGE, PROOF = range(1, 11)
def frame(kind_of_frame, body=b'', sealer=None, kind=0, name=0, message=0, chunk=b'', offset=0, total=0):
    head = b'ECHN' + struct.pack('<BBBBIIHHIQQ', 5, kind_of_frame, kind, 0, 1, message, len(body), name, len(chunk), offset, total)
    tag = b'\0' * 16
    if sealer:
        tag = seal(sealer[0], sealer[1], head, body + chunk)
        sealer[1] += 1
    return head + tag + body + chunk

text = lambda s: bytes([len(s)]) + s.encode()
def hello(authenticator, nonce, rank, address):
    kinds = b''.join(name + b'\0' + struct.pack('<HIQf', names, meta, payload, 0)
                     for name, names, meta, payload in ((b'note', 1, 16, 0), (b'push', 3, 8, 64)))
    prints = (('messages', hashlib.sha256(kinds).hexdigest()), ('model', 'lenet5'))
    return (bytes([authenticator]) + nonce + struct.pack('<HH', rank, 2) + text(address) + bytes([len(prints)]) +
            b''.join(text(a) + text(b) for a, b in prints))

key, caller_nonce, listener_nonce = b'0123456789abcdef', bytes(range(32)), bytes(range(32, 64))
out = [('plain hello', frame(HELLO, hello(0, bytes(32), 1, '10.0.0.2:7001')))]
caller_hello = frame(HELLO, hello(1, caller_nonce, 1, '10.0.0.2:7001'))
challenge = frame(CHALLENGE, listener_nonce)
transcript = hashlib.sha256(caller_hello + challenge).digest()
root = hkdf_extract(b'echelon 5 root', key)
proof_key = hkdf_expand(root, b'echelon 5 proof')
connection = hkdf_extract(transcript, root)
proof = lambda side: hmac.new(proof_key, b"echelon 5 %s's proof" % side + transcript, hashlib.sha256).digest()
caller, listener = ([hkdf_expand(connection, b"echelon 5 %s's frames, plain" % side), 0] for side in (b'caller', b'listener'))
out += [('hello', caller_hello), ('challenge', challenge), ("caller's proof", frame(PROOF, proof(b'caller'))),
        ("listener's proof", frame(PROOF, proof(b'listener'))),
        ("listener's hello", frame(HELLO, hello(1, listener_nonce, 0, '10.0.0.1:7000'), listener)),
        ('peers', frame(PEERS, text('10.0.0.2:7001'), listener)), ('connected', frame(CONNECTED, sealer=caller)),
        ('ready', frame(READY, sealer=listener)), ('credit', frame(CREDIT, sealer=caller, kind=1, name=1, offset=1, total=1)),
        ('data', frame(DATA, b'ab', listener, kind=1, name=2, message=7, chunk=b'\1\2\3\4\5', total=5)),
        ('goodbye', frame(GOODBYE, sealer=caller)),
        ('refuse', frame(REFUSE, struct.pack('<I', 9) + b'no', listener))]
if __name__ == '__main__':
    for name, bytes_ in out:
        print('frame ' + name)
        h = bytes_.hex()
        for i in range(0, len(h), 64):
            line = h[i:i + 64]
            print(' '.join(line[j:j + 8] for j in range(0, len(line), 8)))
