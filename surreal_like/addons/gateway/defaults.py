"""Settings of gateways: ``session_config.gateway``."""

from __future__ import annotations

from session.config.key import FROM_1, PORT, SOME_TIME, Key, section

GATEWAY = section(
    "The processes that serve environments outside of the run: clients that connect.",
    {
        "num": Key(0, "Number at the start.", unit="processes"),
        "host": Key(
            "127.0.0.1",
            "Address to listen on; beyond this machine clients need tokens and TLS.",
        ),
        "port": Key(
            7100,
            "TCP port of gateway-0; gateway-1 has the next one, and so on; 0: any free one.",
            within=PORT,
        ),
        "num_envs": Key(
            1,
            "Environments that each session steps together.",
            unit="streams",
            within=FROM_1,
        ),
        "max_clients": Key(256, "Maximum sessions of one gateway.", unit="sessions", within=FROM_1),
        "max_batch": Key(
            256,
            "Maximum requests that are answered together.",
            unit="requests",
            within=FROM_1,
        ),
        "batch_wait_seconds": Key(
            0.0,
            "Time for which a request may wait for company in its batch.",
            unit="seconds",
        ),
        "when_full": Key(
            "wait",
            "Requests while replay takes no more rows: wait, or act without recording rows.",
            one_of=("wait", "act"),
        ),
        "answer_seconds": Key(
            60.0,
            "Time after which a client gets a message that its answer is late.",
            unit="seconds",
            within=SOME_TIME,
        ),
        "grace_seconds": Key(
            30.0,
            "Time for which a session waits for a client that has lost its connection.",
            unit="seconds",
        ),
        "idle_seconds": Key(
            300.0,
            "Time after which a silent client is sent away; 0: never.",
            unit="seconds",
        ),
        "session_seconds": Key(
            0.0,
            "Age at which a session is asked to connect again after an episode, so that a "
            "load balancer can spread clients anew; 0: never.",
            unit="seconds",
        ),
        "tokens": Key(False, "Clients need a token: surreal-like clients RUN --token NAME."),
        "clients_decide": Key(
            False,
            "Scores and returns of clients count for the goal, beside those of own evaluators and "
            "agents; in a run without own ones they always do.",
        ),
        "tls": section(
            "TLS of the port.",
            {
                "cert": Key(None, "File of the certificate, PEM; None: no TLS.", optional="_str_"),
                "key": Key(None, "File of its private key, PEM.", optional="_str_"),
            },
        ),
        "plaintext": Key(
            False,
            "Listen beyond this machine without TLS: something in front of it encrypts.",
        ),
        "origins": Key([], "Origins of web pages that may connect, besides the gateway's own."),
        "hosts": Key([], "Names of this machine that may stand in the address of a browser."),
        "page": Key(False, "Serve a page with CartPoles that learn in the browser."),
        "threads": Key(
            1, "Threads for the computations of one gateway.", unit="threads", within=FROM_1
        ),
    },
)
