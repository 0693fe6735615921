#include "ui/server.h"

#include <fmt/format.h>

#include "ui/embedded.h"
#include "ui/guard.h"
#include "ui/site.h"

namespace millrace::ui {
namespace {

// A page has six connections at most, and a picture of 32 MiB takes ten seconds on a slow network.
constexpr record::HttpLimits kLimits{.connections = 32, .life = std::chrono::seconds{30}};

}  // namespace

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
