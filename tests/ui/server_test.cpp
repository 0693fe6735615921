#include "ui/server.h"
#include "base/json.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <nlohmann/json.hpp>

#include <thread>

#include "fake_clock.h"
#include "ui/embedded.h"
#include "ui/made_up_runs.h"

namespace millrace::ui {
namespace {

using namespace made_up;
using nlohmann::json;

class ServerTest : public InRuns {
protected:
    void start(const std::string& host = "") {
        if (!has_charts()) GTEST_SKIP() << "built without dygraphs";
        auto server = Server::start({folder_, host, 0});
        ASSERT_TRUE(server.ok()) << server.error().text();
        server_ = std::move(server).value();
    }

    /// The bytes of an answer to these; "<timeout>" behind what came within ten seconds.
    std::string send(const std::string& bytes) const {
        const io::FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        sockaddr_in where{};
        where.sin_family = AF_INET;
        where.sin_port = htons(static_cast<std::uint16_t>(server_->port()));
        where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        EXPECT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&where), sizeof where), 0);
        (void)::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
        std::string got;
        char piece[65536];
        for (;;) {
            pollfd ready{socket.get(), POLLIN, 0};
            if (::poll(&ready, 1, 10000) <= 0) return got + "<timeout>";
            const ssize_t count = ::recv(socket.get(), piece, sizeof piece, 0);
            if (count <= 0) return got;
            got.append(piece, static_cast<std::size_t>(count));
        }
    }
    std::string host() const { return fmt::format("127.0.0.1:{}", server_->port()); }
    std::string get(const std::string& path, const std::string& more = "") const {
        return send(fmt::format("GET {} HTTP/1.1\r\nHost: {}\r\n{}\r\n", path, host(), more));
    }
    static int status_of(const std::string& answer) { return answer.size() > 12 ? std::atoi(answer.c_str() + 9) : 0; }
    static std::string body_of(const std::string& answer) { return answer.substr(answer.find("\r\n\r\n") + 4); }
    json got(const std::string& path) const { return base::json_from(body_of(get(path))); }

    std::unique_ptr<Server> server_;
};

/// What the site answers, a second after the question before.
class SiteTest : public InRuns {
protected:
    json got(const std::string& path, const std::string& query) {
        clock_.advance(std::chrono::seconds{1});
        if (!site_) site_.emplace(std::move(RunFolder::open(folder_)).value(), clock_);
        return base::json_from(site_->answer({path, query, ""}).body);
    }
    base::FakeClock clock_;
    std::optional<Site> site_;
};

TEST_F(SiteTest, TellsWhatIsNewAndNothingElse) {
    write_run("a", epoch_row(1, 0.9, 0.6));
    write_run("b", "");
    const json first = got("/api/runs", "after=0");
    ASSERT_EQ(first["runs"].size(), 2u);
    EXPECT_EQ(first["runs"][0]["name"], "a");
    EXPECT_EQ(first["names"], json({"a", "b"}));
    const std::string after = base::json_text(first["now"]);
    EXPECT_EQ(got("/api/runs", "after=" + after)["runs"].size(), 0u);
    EXPECT_FALSE(got("/api/runs", "after=" + after).contains("names"));
    EXPECT_EQ(got("/api/runs", "after=999999")["runs"].size(), 2u) << "a number of an older server";
    write("a/metrics.jsonl", epoch_row(2, 0.5, 0.7), true);
    const json later = got("/api/runs", "after=" + after);
    ASSERT_EQ(later["runs"].size(), 1u);
    EXPECT_EQ(later["runs"][0]["epoch"], 2);
}

TEST_F(SiteTest, HasLookedBeforeAnybodyAsks) {
    write_run("a", "");
    site_.emplace(std::move(RunFolder::open(folder_)).value(), clock_);
    write_run("b", "");
    EXPECT_EQ(base::json_or_throw(site_->answer({"/api/runs", "after=0", ""}).body)["names"], json({"a"}));
}

TEST_F(SiteTest, LooksTwiceASecondHoweverManyAsk) {
    write_run("a", "");
    const json first = got("/api/runs", "after=0");
    write_run("b", "");
    const auto now = [&] { return base::json_or_throw(site_->answer({"/api/runs", "after=0", ""}).body); };
    EXPECT_EQ(now()["now"], first["now"]);
    clock_.advance(std::chrono::milliseconds{499});
    EXPECT_EQ(now()["names"].size(), 1u);
    clock_.advance(std::chrono::milliseconds{1});
    EXPECT_EQ(now()["names"].size(), 2u);
}

TEST_F(SiteTest, AStudyIsOneOnceItHasADatabaseAndAFolderThatVanishesIsEmpty) {
    write_run("a", "");
    EXPECT_EQ(got("/api/runs", "after=0")["runs"][0]["kind"], "training");
    write("a/sweep.db", "");
    write("a/sweep.html", "<title>x</title>");
    EXPECT_EQ(got("/api/runs", "after=1")["runs"][0]["kind"], "study");
    EXPECT_EQ(got("/api/run", "name=a")["pages"][0]["name"], "a/sweep.html");
    fs::remove_all(folder_);
    EXPECT_TRUE(got("/api/runs", "after=0")["names"].empty());
}

TEST_F(ServerTest, RowsComeFromWhereTheBrowserStands) {
    write_run("a b", epoch_row(1, 0.9, 0.6));
    write("a b/events.jsonl", "{\"time\": 1, \"kind\": \"warning\", \"text\": \"<b>\"}\nno json\n");
    write("a b/curve.svg", "<svg/>");
    start();
    const json first = got("/api/run?name=a%20b");
    ASSERT_EQ(first["metrics"]["rows"].size(), 1u);
    EXPECT_EQ(first["run"]["recipe"]["optim.lr"], "0.001");
    EXPECT_FALSE(first["metrics"]["rows"][0].contains("member_000/validation_loss"));
    EXPECT_EQ(first["events"]["rows"].size(), 1u);
    EXPECT_EQ(first["pictures"], json({"a b/curve.svg"}));
    const std::string offset = base::json_text(first["metrics"]["offset"]);
    const std::string row = epoch_row(2, 0.5, 0.7);
    write("a b/metrics.jsonl", row.substr(0, 50), true);
    EXPECT_EQ(got("/api/run?name=a%20b&metrics=" + offset)["metrics"]["rows"].size(), 0u);
    write("a b/metrics.jsonl", row.substr(50), true);
    const json next = got("/api/run?name=a%20b&metrics=" + offset)["metrics"];
    ASSERT_EQ(next["rows"].size(), 1u);
    EXPECT_EQ(next["rows"][0]["epoch"], 2);
    EXPECT_EQ(next["anew"], false);
    write("a b/metrics.jsonl", epoch_row(1, 0.8, 0.5));  // resumed from the first checkpoint
    const json cut = got("/api/run?name=a%20b&metrics=" + base::json_text(next["offset"]))["metrics"];
    EXPECT_EQ(cut["anew"], true);
    EXPECT_EQ(cut["rows"].size(), 1u);
    EXPECT_EQ(status_of(get("/api/run?name=c")), 404);
    EXPECT_EQ(status_of(get("/api/run?name=../runs/a%20b")), 404);
}

TEST_F(ServerTest, NothingOutsideOfTheFolderIsRead) {
    std::ofstream(outside_ / "secret.html") << "the secret";
    write("page.html", "<title>page</title>");
    write("notes.txt", "not a page");
    fs::create_symlink(outside_ / "secret.html", folder_ / "link.html");
    fs::create_directory_symlink(outside_, folder_ / "folder");
    ASSERT_EQ(::mkfifo((folder_ / "pipe.html").c_str(), 0600), 0);
    start();
    EXPECT_EQ(status_of(get("/files/page.html")), 200);
    for (const char* path : {"/files/../secret.html", "/files/%2e%2e/secret.html", "/files/..%2fsecret.html",
                             "/files//secret.html", "/files/link.html", "/files/folder/secret.html", "/files/./page.html",
                             "/files/page.html%00.html", "/files/page.html%", "/files/%zz.html", "/files/notes.txt", "/files/",
                             "/files", "/files/pipe.html", "/files/.html", "/secret.html", "//etc/passwd", "/../../etc/passwd"}) {
        const std::string answer = get(path);
        EXPECT_EQ(status_of(answer), 404) << path;
        EXPECT_EQ(answer.find("secret"), std::string::npos) << path;
    }
}

TEST_F(ServerTest, AFolderThatIsSwappedForALinkLeadsNowhere) {
    fs::create_directories(outside_ / "other");
    std::ofstream(outside_ / "other/page.html") << "the secret";
    write("a/page.html", "fine");
    start();
    std::atomic<bool> ended = false;
    std::thread swapper([&] {
        while (!ended) {
            fs::rename(folder_ / "a", folder_ / "b");
            fs::create_directory_symlink(outside_ / "other", folder_ / "a");
            fs::remove(folder_ / "a");
            fs::rename(folder_ / "b", folder_ / "a");
        }
    });
    for (int i = 0; i < 300; ++i) EXPECT_EQ(get("/files/a/page.html").find("the secret"), std::string::npos);
    ended = true;
    swapper.join();
}

TEST_F(ServerTest, ForeignHostsAndOriginsAreRefused) {
    write_run("a", "");
    start();
    const int port = server_->port();
    const auto as = [&](const std::string& lines) { return status_of(send("GET /api/runs HTTP/1.1\r\n" + lines + "\r\n")); };
    EXPECT_EQ(as(fmt::format("Host: localhost:{}\r\n", port)), 200);
    EXPECT_EQ(as(fmt::format("hOsT:   127.0.0.1:{}  \r\nOrigin: http://127.0.0.1:{}\r\n", port, port)), 200);
    for (const std::string& lines :
         {std::string(), fmt::format("Host: evil.example:{}\r\n", port), std::string("Host: 127.0.0.1\r\n"),
          fmt::format("Host: 192.168.1.5:{}\r\n", port), fmt::format("Host: 127.0.0.1.evil.example:{}\r\n", port),
          fmt::format("Host: evil@127.0.0.1:{}\r\n", port), fmt::format("Host: 127.0.0.1:{0}\r\nHost: 127.0.0.1:{0}\r\n", port),
          fmt::format("Host: 127.0.0.1:{}\r\nOrigin: http://evil.example\r\n", port),
          fmt::format("Host: 127.0.0.1:{0}\r\nOrigin: https://127.0.0.1:{0}\r\n", port),
          fmt::format("Host: 127.0.0.1:{}\r\nOrigin: null\r\n", port), fmt::format("X-Host: 127.0.0.1:{}\r\n", port)})
        EXPECT_EQ(as(lines), 403) << lines;
}

TEST_F(ServerTest, WithAHostNobodyEntersWithoutTheToken) {
    write_run("a", "");
    start("127.0.0.1");
    ASSERT_EQ(server_->token().size(), 32u);
    EXPECT_NE(server_->address().find("/?token=" + server_->token()), std::string::npos);
    for (const char* path :
         {"/", "/page.js", "/api/runs", "/files/a/x.svg", "/?token=", "/?token=00000000000000000000000000000000", "/?tokens=x"})
        EXPECT_EQ(status_of(get(path)), 403) << path;
    const std::string entered = get("/?token=" + server_->token());
    EXPECT_EQ(status_of(entered), 303);
    const std::string cookie = fmt::format("millrace-{}={}", server_->port(), server_->token());
    EXPECT_NE(entered.find("Set-Cookie: " + cookie + "; Path=/; HttpOnly; SameSite=Strict\r\n"), std::string::npos) << entered;
    EXPECT_EQ(status_of(get("/api/runs", "Cookie: other=1; " + cookie + "\r\n")), 200);
    EXPECT_EQ(status_of(get("/api/runs", "Cookie: x" + cookie + "\r\n")), 403);
    EXPECT_EQ(status_of(get("/api/runs", "Cookie: " + cookie.substr(0, cookie.size() - 1) + "\r\n")), 403);
    EXPECT_EQ(status_of(get("/api/runs", "Cookie: " + cookie + "\r\nOrigin: http://evil.example\r\n")), 403);
    EXPECT_EQ(new_token()->size(), 32u);
    EXPECT_NE(*new_token(), *new_token());
}

TEST_F(ServerTest, OnlyGetIsAnsweredAndHugeHeadersAreNot) {
    start();
    for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "PATCH", "CONNECT", "get"})
        EXPECT_EQ(status_of(send(fmt::format("{} / HTTP/1.1\r\nHost: {}\r\n\r\n", method, host()))), 405) << method;
    EXPECT_EQ(status_of(get("/", "X: " + std::string(100000, 'a') + "\r\n")), 431);
    EXPECT_EQ(status_of(get("/" + std::string(100000, 'a'))), 431);
    EXPECT_EQ(status_of(get("/", std::string(5000, '\n'))), 200) << "an empty line ends the headers";
    EXPECT_EQ(status_of(send("\x16\x03\x01\x02\n\n")), 400);
}

TEST_F(ServerTest, SlowClientsDoNotKeepOthersOut) {
    start();
    std::vector<io::FileDescriptor> slow;
    for (int i = 0; i < 20; ++i) {
        slow.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        sockaddr_in where{};
        where.sin_family = AF_INET;
        where.sin_port = htons(static_cast<std::uint16_t>(server_->port()));
        where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        ASSERT_EQ(::connect(slow.back().get(), reinterpret_cast<sockaddr*>(&where), sizeof where), 0);
        (void)::send(slow.back().get(), "GET / HT", 8, MSG_NOSIGNAL);
    }
    EXPECT_EQ(status_of(get("/")), 200);
    server_.reset();  // ends with them open
}

TEST_F(ServerTest, PagesCarryAPolicyAndForeignOnesHaveNoOrigin) {
    write("mine.html", "<script>fetch('/api/runs')</script>");
    start();
    for (const char* path : {"/", "/page.js", "/page.css", "/api/runs"}) {
        const std::string answer = get(path);
        EXPECT_EQ(status_of(answer), 200) << path;
        EXPECT_NE(answer.find("Content-Security-Policy: default-src 'none'; script-src 'self'"), std::string::npos) << path;
        EXPECT_NE(answer.find("X-Content-Type-Options: nosniff"), std::string::npos);
    }
    const std::string foreign = get("/files/mine.html");
    EXPECT_NE(foreign.find("Content-Security-Policy: sandbox allow-scripts; default-src 'none'"), std::string::npos);
    EXPECT_EQ(foreign.find("allow-same-origin"), std::string::npos);
    EXPECT_EQ(body_of(get("/page.js")), live_script());
}

TEST(Guard, DecodesWhatBrowsersEncode) {
    EXPECT_EQ(percent_decoded("a%20b%2Fc+d"), "a b/c+d");
    EXPECT_FALSE(percent_decoded("%").has_value());
    EXPECT_FALSE(percent_decoded("%4").has_value());
    EXPECT_FALSE(percent_decoded("%00").has_value());
    EXPECT_EQ(query_value("a=1&name=x%26y&b", "name"), "x&y");
    EXPECT_FALSE(query_value("names=x", "name").has_value());
    EXPECT_EQ(query_value("name=", "name"), "");
}

}  // namespace
}  // namespace millrace::ui
