#pragma once
// The live page and its server, which answers: the page, and what is new in the folder.
//
//     /, /page.css, /page.js
//     /api/runs?after=N                 runs that changed after look N, names and pages where those changed, and the number of
//                                       this look
//     /api/run?name=RUN&metrics=N&events=N&samples=N
//                                       the run, and rows of its streams behind byte N of each (-1: of the newest part)
//     /files/NAME                       a picture or a page in the folder, which may do nothing with this origin

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "record/http_responder.h"
#include "ui/run_folder.h"

namespace millrace::ui {

/// 32 hexadecimal digits from the system's random numbers.
base::Result<std::string> new_token();

/// "a b" of "a%20b"; nothing where a "%" is followed by no two hexadecimal digits, or stands for a zero byte.
std::optional<std::string> percent_decoded(std::string_view text);
/// The decoded value of a query's key; nothing where it is missing or malformed.
std::optional<std::string> query_value(std::string_view query, std::string_view key);

/// Who may ask: the machine itself, or, where another address was asked for, whoever has the token.
class Guard {
public:
    /// `token` empty: only names of this machine's own loopback may be asked for.
    explicit Guard(std::string token) : token_(std::move(token)) {}

    /// What to answer instead of a page. A name of a host is refused unless it is "localhost" (somebody else's name may be made
    /// to lead here), and so is a page of another origin, and who has no token. With the right token in the query: the answer
    /// that keeps it as a cookie.
    [[nodiscard]] std::optional<record::HttpReply> refusal(const record::HttpRequest& request) const;

private:
    [[nodiscard]] bool knows_host(std::string_view host) const;
    [[nodiscard]] bool has_cookie(const record::HttpRequest& request, const std::string& name) const;

    std::string token_;
};

class Site {
public:
    /// `clock` is borrowed. The folder is looked at now, and when somebody asks, twice a second at most.
    Site(RunFolder folder, const base::Clock& clock) : folder_(std::move(folder)), clock_(clock) { look(); }

    record::HttpReply answer(const record::HttpRequest& request);

private:
    void look();
    [[nodiscard]] record::HttpReply runs_since(const record::HttpRequest& request);
    [[nodiscard]] record::HttpReply run_since(const record::HttpRequest& request);
    [[nodiscard]] record::HttpReply file(std::string_view path) const;
    [[nodiscard]] std::vector<std::string> pictures_of(const std::string& run) const;

    RunFolder folder_;
    const base::Clock& clock_;
    std::chrono::nanoseconds looked_{};
};

struct ServerOptions {
    io::Path folder;
    std::string host;  ///< a numeric address or "localhost"; empty: this machine alone, and no token is asked for
    int port = 0;      ///< 0: any that is free
};

/// The live page of a folder, for as long as it lives. One thread, which reads the folder when a browser asks.
class Server {
public:
    static base::Result<std::unique_ptr<Server>> start(const ServerOptions& options);

    /// To be opened in a browser; with the token, where there is one.
    [[nodiscard]] std::string address() const;
    [[nodiscard]] int port() const { return responder_->port(); }
    [[nodiscard]] const std::string& token() const { return token_; }

private:
    Server(std::string token, std::unique_ptr<record::HttpResponder> responder)
        : token_(std::move(token)), responder_(std::move(responder)) {}

    std::string token_;
    std::unique_ptr<record::HttpResponder> responder_;
};

}  // namespace millrace::ui
