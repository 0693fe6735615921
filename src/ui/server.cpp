#include "ui/server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/split.h"
#include "base/units.h"
#include "plot/page.h"
#include "ui/embedded.h"
#include "ui/stream_rows.h"

namespace millrace::ui {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::chrono::milliseconds kBetweenLooks{500};
constexpr std::size_t kFileCap = std::size_t{32} << 20;
constexpr std::size_t kMostPictures = 50;

constexpr const char* kPlain = "text/plain; charset=utf-8";
constexpr const char* kCommonHeaders =
    "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"
    "Cross-Origin-Opener-Policy: same-origin\r\nCross-Origin-Resource-Policy: same-origin\r\n";
constexpr const char* kPagePolicy =
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; frame-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'\r\n";
/// A page from the folder may be anybody's: it runs without an origin, so it can ask this server for nothing.
constexpr const char* kForeignPolicy =
    "Content-Security-Policy: sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data:; frame-ancestors 'self'; base-uri 'none'; form-action 'none'\r\n";

struct FileType {
    std::string_view ending;
    const char* type;
};
constexpr std::array<FileType, 3> kServed{
    {{".html", "text/html; charset=utf-8"}, {".svg", "image/svg+xml"}, {".png", "image/png"}}};

record::HttpReply reply(int status, const char* type, std::string body, const char* policy = kPagePolicy) {
    return {status, type, std::move(body), std::string(kCommonHeaders) + policy};
}

record::HttpReply json_reply(std::string text) { return reply(200, "application/json", std::move(text)); }
record::HttpReply nothing(const std::string& what) { return reply(404, kPlain, what + "\n"); }

std::int64_t whole_number(const std::optional<std::string>& text) {
    return text ? static_cast<std::int64_t>(std::strtoll(text->c_str(), nullptr, 10)) : -1;
}

bool is_picture(std::string_view name) { return name.ends_with(".svg") || name.ends_with(".png"); }

// A page has six connections at most, and a picture of 32 MiB takes ten seconds on a slow network.
constexpr record::HttpLimits kLimits{.connections = 32, .life = std::chrono::seconds{30}};

/// In a time that does not depend on where they differ.
bool are_equal(std::string_view a, std::string_view b) {
    if (a.size() != b.size()) return false;
    unsigned different = 0;
    for (std::size_t i = 0; i < a.size(); ++i) different |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
    return different == 0;
}

record::HttpReply refuse(const std::string& why) { return {403, kPlain, why + "\n"}; }

}  // namespace

base::Result<std::string> new_token() {
    std::array<unsigned char, 16> bytes{};
    if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
        return base::Error{"the system gives no random numbers", {}, 1};
    std::string token;
    for (const unsigned char byte : bytes) token += fmt::format("{:02x}", byte);
    return token;
}

std::optional<std::string> percent_decoded(std::string_view text) {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '%') {
            out += text[i];
            continue;
        }
        const std::string_view digits = text.substr(i + 1, 2);
        unsigned char byte = 0;
        const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
        if (digits.size() < 2 || read.ptr != digits.data() + 2 || byte == 0) return std::nullopt;
        out += static_cast<char>(byte);
        i += 2;
    }
    return out;
}

std::optional<std::string> query_value(std::string_view query, std::string_view key) {
    for (const std::string& part : base::split(query, '&'))
        if (part.size() > key.size() && part.starts_with(key) && part[key.size()] == '=')
            return percent_decoded(std::string_view(part).substr(key.size() + 1));
    return std::nullopt;
}

bool Guard::knows_host(std::string_view host) const {
    const std::size_t port = host.rfind(':');
    if (port == std::string_view::npos || port + 1 == host.size() ||
        host.find_first_not_of("0123456789", port + 1) != std::string_view::npos)
        return false;
    std::string name(host.substr(0, port));
    if (name == "localhost" || name == "127.0.0.1" || name == "[::1]") return true;
    if (token_.empty()) return false;
    if (name.size() > 2 && name.front() == '[' && name.back() == ']') name = name.substr(1, name.size() - 2);
    in6_addr any{};
    return ::inet_pton(AF_INET, name.c_str(), &any) == 1 || ::inet_pton(AF_INET6, name.c_str(), &any) == 1;
}

bool Guard::has_cookie(const record::HttpRequest& request, const std::string& name) const {
    for (const std::string& part : base::split(request.header("Cookie").value_or(""), ';')) {
        const std::string_view cookie = base::trimmed(part);
        if (cookie.starts_with(name + "=") && are_equal(cookie.substr(name.size() + 1), token_)) return true;
    }
    return false;
}

std::optional<record::HttpReply> Guard::refusal(const record::HttpRequest& request) const {
    const std::string_view host = request.header("Host").value_or("");
    if (!knows_host(host)) return refuse("this address is not known here: ask by number, such as http://127.0.0.1");
    const auto origin = request.header("Origin");
    if (origin && *origin != fmt::format("http://{}", host)) return refuse("a page of another origin may not ask");
    if (token_.empty()) return std::nullopt;
    // A browser keeps one set of cookies for all ports of a host.
    const std::string cookie = fmt::format("millrace-{}", host.substr(host.rfind(':') + 1));
    if (const auto given = query_value(request.query, "token")) {
        if (!are_equal(*given, token_)) return refuse("the token is not the one that millrace ui printed");
        return record::HttpReply{303, kPlain, "",
                                 fmt::format("Location: /\r\nCache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n"
                                             "Set-Cookie: {}={}; Path=/; HttpOnly; SameSite=Strict\r\n",
                                             cookie, token_)};
    }
    if (has_cookie(request, cookie)) return std::nullopt;
    return refuse("open the address with the token that millrace ui printed");
}

record::HttpReply Site::answer(const record::HttpRequest& request) {
    if (request.path == "/") return reply(200, "text/html; charset=utf-8", std::string(live_page()));
    if (request.path == "/page.css") return reply(200, "text/css", std::string(plot::page_style()) + std::string(page_look()));
    if (request.path == "/page.js") return reply(200, "text/javascript; charset=utf-8", std::string(live_script()));
    if (request.path == "/api/runs") return runs_since(request);
    if (request.path == "/api/run") return run_since(request);
    if (request.path.starts_with("/files/")) return file(request.path.substr(7));
    return nothing("there is nothing of this name");
}

void Site::look() {
    const auto now = clock_.now();
    if (folder_.looks() > 0 && now - looked_ < kBetweenLooks) return;
    folder_.look();
    looked_ = clock_.now();  // a folder that takes long to look at is looked at less often
}

record::HttpReply Site::runs_since(const record::HttpRequest& request) {
    look();
    const std::int64_t asked = whole_number(query_value(request.query, "after"));
    // A number of another server, which was here before.
    const std::uint64_t after =
        asked < 0 || static_cast<std::uint64_t>(asked) > folder_.looks() ? 0 : static_cast<std::uint64_t>(asked);
    Json json{{"now", folder_.looks()}, {"folder", folder_.folder().path().string()}, {"runs", Json::array()}};
    for (const auto& [name, run] : folder_.runs()) {
        if (run.changed <= after) continue;
        json["runs"].push_back(run_json(run.follower.summary(), false));
    }
    if (after == 0 || folder_.list_changed() > after) {
        json["names"] = Json::array();
        for (const auto& [name, run] : folder_.runs()) json["names"].push_back(name);
        json["pages"] = Json::array();
        for (const FoundPage& page : folder_.pages())
            json["pages"].push_back({{"name", page.name}, {"title", page.title}, {"modified", page.modified / 1'000'000}});
    }
    json["problems"] = folder_.problems();
    json["cut"] = folder_.was_cut();
    return json_reply(base::json_text(json));
}

std::vector<std::string> Site::pictures_of(const std::string& run) const {
    std::vector<std::string> found;
    const auto entries = folder_.folder().list(run == "." ? "" : run, 1000);
    if (!entries.ok()) return found;
    for (const io::HeldFolder::Entry& entry : *entries)
        if (!entry.is_folder && is_picture(entry.name) && found.size() < kMostPictures && !entry.name.starts_with('.'))
            found.push_back(below(run, entry.name));
    return found;
}

record::HttpReply Site::run_since(const record::HttpRequest& request) {
    look();
    const auto name = query_value(request.query, "name");
    const auto run = name ? folder_.runs().find(*name) : folder_.runs().end();
    if (run == folder_.runs().end()) return nothing("there is no run of this name");
    Json pages = Json::array();
    for (const char* page : {"sweep.html", "report.html"})
        if (const auto found = folder_.folder().open_file(below(*name, page)); found.ok())
            pages.push_back({{"name", below(*name, page)}, {"modified", found->modified / 1'000'000}});
    std::string text =
        fmt::format(R"({{"run":{},"pictures":{},"pages":{})", base::json_text(run_json(run->second.follower.summary())),
                    base::json_text(Json(pictures_of(*name))), base::json_text(pages));
    for (const char* stream : {"metrics", "events", "samples"})
        text += fmt::format(R"(,"{}":{})", stream,
                            stream_json(folder_.folder(), below(*name, std::string(stream) + ".jsonl"),
                                        whole_number(query_value(request.query, stream))));
    return json_reply(text + "}");
}

record::HttpReply Site::file(std::string_view path) const {
    const auto name = percent_decoded(path);
    if (!name) return nothing("there is no such file");
    const auto type = std::ranges::find_if(kServed, [&](const FileType& one) { return name->ends_with(one.ending); });
    if (type == kServed.end()) return nothing("only pictures and pages are shown");
    auto text = folder_.folder().read_text(*name, kFileCap);
    if (!text.ok()) return nothing("there is no such file, or it is too large to be shown");
    return reply(200, type->type, std::move(text).value(), kForeignPolicy);
}

base::Result<std::unique_ptr<Server>> Server::start(const ServerOptions& options) {
    if (!has_charts())
        return base::Error{
            "this program was built without the library that draws curves; install Debian's libjs-dygraphs and build "
            "again, or read runs with millrace runs",
            {},
            2};
    MILLRACE_LET(folder, RunFolder::open(options.folder));
    std::string token;
    if (!options.host.empty()) MILLRACE_SET(token, new_token());
    auto site = std::make_shared<Site>(std::move(folder), base::SteadyClock::shared());
    auto answer = [site, guard = Guard(token)](const record::HttpRequest& request) {
        if (auto refused = guard.refusal(request)) return *std::move(refused);
        return site->answer(request);
    };
    MILLRACE_LET(responder, record::HttpResponder::start(options.host.empty() ? "127.0.0.1" : options.host, options.port,
                                                         std::move(answer), kLimits));
    return std::unique_ptr<Server>(new Server(std::move(token), std::move(responder)));
}

std::string Server::address() const {
    return fmt::format("http://{}/{}", responder_->address(), token_.empty() ? "" : "?token=" + token_);
}

}  // namespace millrace::ui
