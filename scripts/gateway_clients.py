#!/usr/bin/env python3
"""Clients of the scripts that measure the gateway.

gateway_clients.py idle ADDRESS COUNT [tls]     opens COUNT connections with a request each, prints `ready`, and keeps them
                                                until its standard input ends
gateway_clients.py abuse ADDRESS SECONDS        a client within its quota beside one that sends without pause
gateway_clients.py keys ADDRESS COUNT           a new key for each of COUNT requests, with a listed key between them
gateway_clients.py hang ADDRESS SECONDS         clients that stop in the middle of what they send or read
"""

import asyncio
import random
import socket
import ssl
import sys
import time


def address(text):
    host, port = text.rsplit(":", 1)
    return host, int(port)


def request(key, path="/"):
    return f"GET {path} HTTP/1.1\r\nHost: gateway\r\nX-Api-Key: {key}\r\n\r\n".encode()


async def response(reader):
    """Reads a response; returns its status."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    if "content-length: " in head:
        await reader.readexactly(int(head.split("content-length: ")[1].split("\r\n")[0]))
    elif "transfer-encoding: chunked" in head:
        while size := int(await reader.readline(), 16):
            await reader.readexactly(size + 2)
        await reader.readline()
    return int(head.split()[1])


def idle(where, count, tls):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connections = []
    for _ in range(count):
        connection = socket.create_connection(where)
        if tls:
            connection = context.wrap_socket(connection)
        connection.sendall(request("load"))
        received = b""
        while b"\r\n\r\n" not in received:
            part = connection.recv(4096)
            if not part:
                raise SystemExit("the gateway closed a connection")
            received += part
        connections.append(connection)
    print("ready", flush=True)
    sys.stdin.read()


def quantile(times, part):
    return sorted(times)[int(part * (len(times) - 1))] * 1000 if times else float("nan")


async def abuse(where, seconds):
    end = time.monotonic() + seconds
    good, bad = {"times": [], "refused": 0}, {"times": [], "refused": 0}

    async def client(key, counts, pause):
        reader, writer = await asyncio.open_connection(*where)
        while time.monotonic() < end:
            began = time.monotonic()
            writer.write(request(key))
            status = await response(reader)
            if status == 200:
                counts["times"].append(time.monotonic() - began)
            else:
                counts["refused"] += 1
                # Some servers close the connection.
            await asyncio.sleep(max(0, pause - (time.monotonic() - began)))
        writer.close()

    await asyncio.gather(client("good", good, 0.1), *(client("bad", bad, 0) for _ in range(32)))
    print(
        f"| {len(good['times'])}, {good['refused']} | {quantile(good['times'], 0.5):.1f}, {quantile(good['times'], 0.99):.1f} "
        f"| {len(bad['times']) / seconds:.0f}, {bad['refused'] / seconds:.0f} "
        f"| {quantile(bad['times'], 0.5):.1f}, {quantile(bad['times'], 0.99):.1f} |"
    )


async def keys(where, count):
    """Requests with new keys over 64 connections. After each 100th, the listed key `good` asks once."""
    numbers = iter(range(count))
    statuses, good = {}, []

    async def client():
        reader, writer = await asyncio.open_connection(*where)
        for number in numbers:
            writer.write(request(f"made-up-key-{number:08}"))
            status = await response(reader)
            statuses[status] = statuses.get(status, 0) + 1
            if number % 100 == 0:
                began = time.monotonic()
                writer.write(request("good"))
                good.append((await response(reader), time.monotonic() - began))
        writer.close()

    await asyncio.gather(*(client() for _ in range(64)))
    served = [took for status, took in good if status == 200]
    print(f"keys={count} statuses={statuses} good_served={len(served)} of {len(good)} p99={quantile(served, 0.99):.1f}ms")


async def hang(where, seconds):
    end = time.monotonic() + seconds

    async def client(number):
        while time.monotonic() < end:
            try:
                reader, writer = await asyncio.open_connection(*where)
                kind = number % 5
                if kind == 0:
                    writer.write(b"GET / HTTP/1.1\r\nHost: gate")
                elif kind == 1:
                    writer.write(b"POST / HTTP/1.1\r\nHost: gateway\r\nContent-Length: 100000\r\n\r\nhalf")
                elif kind == 2:
                    writer.write(request(f"key-{number}") * 50)
                elif kind == 3:
                    writer.write(request(f"key-{number}"))
                else:
                    writer.write(request(f"key-{number}"))
                    await response(reader)
                await asyncio.sleep(random.random() * 2)
                writer.close()
            except (OSError, asyncio.IncompleteReadError, ValueError):
                await asyncio.sleep(0.05)

    await asyncio.gather(*(client(number) for number in range(100)))


def main():
    command, where, number = sys.argv[1], address(sys.argv[2]), int(sys.argv[3])
    if command == "idle":
        idle(where, number, "tls" in sys.argv[4:])
    else:
        asyncio.run({"abuse": abuse, "keys": keys, "hang": hang}[command](where, number))


main()
