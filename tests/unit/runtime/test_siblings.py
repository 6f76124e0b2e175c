"""Processes that share a port: whose a request is, how it is passed on, and that it never goes in circles."""

import asyncio
import json
from collections import Counter
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry

from edgewise.runtime import clock, http
from edgewise.runtime.gateway.siblings import PASSED_ON, Siblings, merged
from edgewise.runtime.http.ports import free_port
from edgewise.runtime.protocol.messages import DEADLINE, STREAM
from edgewise.runtime.store import Process, sibling_name
from edgewise.runtime.store.records import stream_number

TOKEN = "between-the-parts"
QUERY = "/v2/models/score/infer"


class Member:
    """One of the processes of a gateway, whose own answers say what came to it."""

    def __init__(self, number, count, services=None):
        self.number, self.name, self.seen = number, sibling_name("gateway-0", number), []
        settings = {"share": [number, count]}
        self.process = Process(self.name, "gateway", free_port(), settings)
        registry = CollectorRegistry()
        gateway = SimpleNamespace(services=services, metrics=SimpleNamespace(registry=registry))
        self.siblings = Siblings(gateway, self.local, self.process, TOKEN)

    async def local(self, request):
        self.seen.append(request)
        if request.path == "/metrics":
            text = f'# HELP a What.\n# TYPE a gauge\na {self.number}.0\n# TYPE b gauge\nb{{c="d"}} 2.0\n'
            return http.Response(200, text.encode(), {"content-type": "text/plain"})
        if request.path == "/v1/streams":
            return http.as_json([{"stream": self.number}])
        return http.as_json({"who": self.name, "client": request.client})

    async def listen(self):
        guard = http.AccessGuard(operators=("operator",))
        private = self.siblings.taking(http.protect(self.local, guard))
        self.server = await http.serve(private, port=self.process.port, at_once=True)
        self.front = await http.serve(self.siblings.handle, at_once=True)
        self.client = http.Client(self.front.host, self.front.port)

    async def close(self):
        self.client.close()
        self.siblings.close()
        await asyncio.gather(self.server.close(0), self.front.close(0))


def together(scenario, count=2, **options):
    """Run a scenario with processes that know each other."""

    async def run():
        members = [Member(number, count, **options) for number in range(count)]
        for member in members:
            member.siblings.follow(each.process for each in members)
            await member.listen()
        try:
            await asyncio.wait_for(scenario(members), 30)
        finally:
            for member in members:
                await member.close()

    asyncio.run(run())


async def asked(member, path=QUERY, method="POST", body=b"", **headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = await member.client.request(method, path, named, body)
    return answer.status, json.loads(answer.body)


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_a_streams_number_says_which_process_has_it(count):
    for mine in range(count):
        numbers = [stream_number((mine, count)) for _ in range(200)]
        assert {number % count for number in numbers} == {mine % count}
        assert all(0 < number < 2**53 for number in numbers) and len(set(numbers)) == 200


def test_a_query_is_answered_by_the_process_that_has_its_stream_whoever_got_it():
    async def scenario(members):
        for member in members:
            for number in range(3, 9):
                status, answer = await asked(member, edgewise_stream=str(number))
                assert (status, answer["who"]) == (200, members[number % 3].name)
        assert [len(member.seen) for member in members] == [6, 6, 6]
        assert {request.path for member in members for request in member.seen} == {QUERY}

    together(scenario, count=3)


def test_what_is_about_a_stream_goes_where_the_query_goes_and_an_opening_stays():
    async def scenario(members):
        first, second = members
        for method in ("GET", "PUT", "DELETE"):
            assert (await asked(first, "/v1/streams/7", method))[1]["who"] == second.name
        assert (await asked(first, "/v1/streams/x%20y", "GET"))[1]["who"] == first.name
        await asked(second, "/v1/streams", "POST", b"{}")
        assert second.seen[-1].body == b"{}" and len(first.seen) == 1
        assert (await asked(first, "/v1/streams", "GET"))[1] == [{"stream": 0}, {"stream": 1}]

    together(scenario)


def test_the_answer_knows_when_a_query_came_and_from_whom_and_no_secret_of_its_client():
    async def scenario(members):
        first, second = members
        before_s = clock.monotonic_s()
        shown = {"authorization": "Bearer mine", "accept-encoding": "gzip", PASSED_ON: "0.0 *"}
        answer = await first.client.request("POST", QUERY, {STREAM: "7", "x-more": "kept"} | shown, b"body")
        (request,) = second.seen
        assert answer.status == 200 and request.client == "127.0.0.1" and request.body == b"body"
        assert before_s < request.received_s < clock.monotonic_s()
        assert request.headers["x-more"] == "kept" and "accept-encoding" not in request.headers
        assert "mine" not in str(request.headers)

    together(scenario)


def test_queries_with_the_same_needs_meet_in_one_process_and_other_needs_in_others():
    async def scenario(members):
        who = {}
        for rate in map(str, range(1, 30)):
            found = {(await asked(each, edgewise_rate_qps=rate))[1]["who"] for each in members}
            assert len(found) == 1
            who[rate] = found.pop()
        assert set(who.values()) == {member.name for member in members}
        other = {(await asked(members[0], f"/v2/models/t{k}/infer", edgewise_rate_qps="1"))[1]["who"]
                 for k in range(20)}  # fmt: skip
        assert len(other) == 2

    together(scenario)


def test_a_query_without_needs_and_a_request_of_a_service_stay_where_they_came():
    async def scenario(members):
        for member in members:
            assert (await asked(member))[1]["who"] == member.name
            for k in range(8):
                answer = await asked(member, "/v2/models/served/infer", **{DEADLINE: str(k + 1)})
                assert answer[1]["who"] == member.name

    together(scenario, services=SimpleNamespace(names=("served",)))


def test_a_dead_sibling_is_answered_for_until_it_is_back():
    async def scenario(members):
        first, second = members
        assert (await asked(first, edgewise_stream="7"))[0] == 200
        await second.server.close(0)
        answer = await first.client.request("POST", QUERY, {STREAM: "7"})
        assert answer.status == 503 and "retry-after" in answer.headers
        assert b"started again, with its streams" in answer.body
        assert (await asked(first, "/v1/streams", "GET"))[0] == 503  # half a list would look like a whole one
        assert (await asked(first, edgewise_stream="6"))[0] == 200
        second.process = Process(second.name, "gateway", free_port(), second.process.settings)  # it moved
        private = second.siblings.taking(second.local)
        second.server = await http.serve(private, port=second.process.port)
        first.siblings.follow([second.process])
        assert (await asked(first, edgewise_stream="7"))[1]["who"] == second.name

    together(scenario)


def test_a_sibling_that_is_not_known_yet_is_away():
    async def scenario(members):
        alone = Member(0, 2)
        await alone.listen()
        assert (await asked(alone, edgewise_stream="7"))[0] == 503
        await alone.close()

    together(scenario)


def test_what_was_passed_on_is_never_passed_on_again():
    async def scenario(members):
        first, second = members
        began_s = clock.monotonic_s()
        passed = http.Client.of_url(first.process.url, TOKEN)  # a sibling with another idea of whose it is
        answer = await passed.request("POST", QUERY, {STREAM: "7", PASSED_ON: "1.5 @someone"})
        assert json.loads(answer.body) == {"who": first.name, "client": "@someone"}
        assert began_s - 1.5 <= first.seen[0].received_s <= clock.monotonic_s() - 1.5 and not second.seen
        passed.close()

    together(scenario)


@pytest.mark.parametrize("token", [None, "wrong", "operator"])
def test_only_who_shows_the_token_of_the_parts_says_for_whom_it_asks(token):
    async def scenario(members):
        stranger = http.Client.of_url(members[0].process.url, token)
        answer = await stranger.request("GET", "/v1/streams/6", {PASSED_ON: "1.5 @someone"})
        assert json.loads(answer.body)["client"] == ("*" if token == "operator" else "127.0.0.1")
        assert members[0].seen[0].received_s > 1.5
        stranger.close()

    together(scenario)


def test_administration_is_not_for_whichever_process_a_connection_meets():
    async def scenario(members):
        status, answer = await asked(members[0], "/v1/admin/policies/dispatch", "PUT", b"{}")
        assert status == 421 and "2 processes share this port" in answer["error"]
        assert not members[0].seen and not members[1].seen

    together(scenario)


def test_metrics_are_those_of_all_that_answer():
    async def scenario(members):
        page = (await members[1].client.request("GET", "/metrics")).body.decode()
        assert page.splitlines() == [
            "# HELP a What.", "# TYPE a gauge", 'a{gateway="gateway-0.1"} 1.0', 'a{gateway="gateway-0"} 0.0',
            "# TYPE b gauge", 'b{gateway="gateway-0.1",c="d"} 2.0', 'b{gateway="gateway-0",c="d"} 2.0',
        ]  # fmt: skip
        await members[0].server.close(0)
        page = (await members[1].client.request("GET", "/metrics")).body.decode()
        assert Counter(line[:1] for line in page.splitlines()) == {"#": 3, "a": 1, "b": 1}

    together(scenario)


def test_one_page_of_metrics_is_that_page_with_a_label():
    page = '# HELP x X.\n# TYPE x histogram\nx_bucket{le="1.0"} 1.0\nx_count 1.0\n'
    assert merged({"g": page}).splitlines()[2:] == [
        'x_bucket{gateway="g",le="1.0"} 1.0',
        'x_count{gateway="g"} 1.0',
    ]
