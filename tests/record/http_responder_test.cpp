#include "record/http_responder.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "record/sink_rig.h"
#include "record/sinks.h"

namespace millrace::record {
namespace {

using namespace test_rig;

io::FileDescriptor connect_to(int port) {
    io::FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_port = htons(static_cast<std::uint16_t>(port));
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&where), sizeof where), 0);
    return socket;
}

void send_all(const io::FileDescriptor& socket, std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t put = ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (put <= 0) return;
        bytes.remove_prefix(static_cast<std::size_t>(put));
    }
}

/// All until the other side hangs up; gives up after five seconds.
std::string receive_all(const io::FileDescriptor& socket) {
    std::string got;
    char bytes[4096];
    for (;;) {
        pollfd ready{socket.get(), POLLIN, 0};
        if (::poll(&ready, 1, 5000) <= 0) return got + "<timeout>";
        const ssize_t count = ::recv(socket.get(), bytes, sizeof bytes, 0);
        if (count <= 0) return got;
        got.append(bytes, static_cast<std::size_t>(count));
    }
}

std::string ask(int port, std::string_view request) {
    const io::FileDescriptor socket = connect_to(port);
    send_all(socket, request);
    return receive_all(socket);
}

std::unique_ptr<HttpResponder> echo(HttpLimits limits = {}) {
    auto responder = HttpResponder::start(
        "127.0.0.1", 0,
        [](std::string_view path) {
            return HttpReply{200, "text/plain", "<" + std::string(path) + ">"};
        },
        limits);
    EXPECT_TRUE(responder.ok()) << responder.error().text();
    return std::move(responder).value();
}

TEST(HttpResponder, AnswersGetAndHead) {
    const auto responder = echo();
    const std::string get = ask(responder->port(), "GET /a/b?c=d HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_TRUE(get.starts_with("HTTP/1.1 200 OK\r\n")) << get;
    EXPECT_NE(get.find("Content-Length: 6\r\n"), std::string::npos);
    EXPECT_TRUE(get.ends_with("\r\n\r\n</a/b>")) << get;
    const std::string head = ask(responder->port(), "HEAD /a/b HTTP/1.0\n\n");
    EXPECT_NE(head.find("Content-Length: 6\r\n"), std::string::npos);
    EXPECT_TRUE(head.ends_with("\r\n\r\n")) << head;
}

TEST(HttpResponder, RefusesWhatIsNoRequestOfItsKind) {
    const auto responder = echo();
    EXPECT_TRUE(ask(responder->port(), "POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc").starts_with("HTTP/1.1 405 "));
    for (const char* request : {"\r\n\r\n", "GET\r\n\r\n", "GET / \r\n\r\n", "GET / HTTP/2\r\n\r\n", "GET x HTTP/1.1\r\n\r\n",
                                "GET  HTTP/1.1\r\n\r\n", "GET /a b HTTP/1.1\r\n\r\n", "\x16\x03\x01 \n\n"})
        EXPECT_TRUE(ask(responder->port(), request).starts_with("HTTP/1.1 400 ")) << request;
    EXPECT_TRUE(ask(responder->port(), "GET /" + std::string(20000, 'a')).starts_with("HTTP/1.1 431 "));
}

TEST(HttpResponder, ReadsARequestInPiecesAndAHalfClosedOne) {
    const auto responder = echo();
    const io::FileDescriptor socket = connect_to(responder->port());
    for (const char letter : std::string_view("GET /x HTTP/1.1\r\n\r\n")) send_all(socket, {&letter, 1});
    ::shutdown(socket.get(), SHUT_WR);
    EXPECT_TRUE(receive_all(socket).ends_with("</x>"));
}

TEST(HttpResponder, SlowClientsAreCutOffAndDoNotKeepOthersOut) {
    HttpLimits limits;
    limits.connections = 2;
    limits.life = std::chrono::milliseconds{150};
    const auto responder = echo(limits);
    std::vector<io::FileDescriptor> slow;
    for (int i = 0; i < 4; ++i) {
        slow.push_back(connect_to(responder->port()));
        send_all(slow.back(), "GET /slow HT");
    }
    EXPECT_TRUE(ask(responder->port(), "GET /quick HTTP/1.1\r\n\r\n").ends_with("</quick>"));
    for (const io::FileDescriptor& socket : slow) EXPECT_EQ(receive_all(socket), "") << "cut off without a word";
}

TEST(HttpResponder, EndsWithConnectionsOpen) {
    auto responder = echo();
    const io::FileDescriptor socket = connect_to(responder->port());
    send_all(socket, "GET");
    responder.reset();
    EXPECT_EQ(receive_all(socket), "");
}

TEST(PrometheusPort, ServesMetricsAndNothingElse) {
    auto sink = prometheus_port_sink("", 0, two_gpus());
    ASSERT_TRUE(sink.ok()) << sink.error().text();
    const std::string name = (*sink)->name();
    ASSERT_TRUE(name.starts_with("Prometheus http://127.0.0.1:")) << name;
    const int port = std::stoi(name.substr(name.rfind(':') + 1));
    ASSERT_TRUE((*sink)->write(row_of(busy_sample(0))).ok());
    const std::string metrics = ask(port, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_TRUE(metrics.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4")) << metrics;
    EXPECT_NE(metrics.find("\nmillrace_cpu_utilization_ratio 0.4525\n"), std::string::npos);
    EXPECT_TRUE(ask(port, "GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200 "));
    EXPECT_TRUE(ask(port, "GET /secret HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
}

TEST(PrometheusPort, PortInUseAndBadAddressesAreErrorsThatSaySo) {
    const auto responder = echo();
    const auto taken = prometheus_port_sink("127.0.0.1", responder->port(), two_gpus());
    ASSERT_FALSE(taken.ok());
    EXPECT_NE(taken.error().text().find("another program listens on this port"), std::string::npos) << taken.error().text();
    EXPECT_EQ(taken.error().exit_status, 2);
    for (const auto& [address, port] :
         {std::pair("not an address", 0), std::pair("127.0.0.1", 70000), std::pair("127.0.0.1", -1), std::pair("203.0.113.7", 0)})
        EXPECT_FALSE(prometheus_port_sink(address, port, two_gpus()).ok()) << address << port;
    EXPECT_TRUE(prometheus_port_sink("localhost", 0, two_gpus()).ok());
}

}  // namespace
}  // namespace millrace::record
