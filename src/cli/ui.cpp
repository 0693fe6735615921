#include <fmt/format.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <memory>

#include "base/signal_queue.h"
#include "cli/commands.h"
#include "ui/server.h"

namespace millrace::cli {
namespace {

constexpr int kUsualPort = 8642;

struct UiArguments {
    std::string folder = "runs";
    std::optional<std::string> host;
    std::optional<std::int64_t> port;
};

base::Result<int> run_ui(const UiArguments& given) {
    base::SignalQueue signals(std::array{SIGINT, SIGTERM, SIGHUP});
    if (given.host && given.host->empty())
        return base::Error{"names no address; leave it out for this machine alone", "--host \"\""};
    if (given.port && (*given.port < 0 || *given.port > 65535))
        return base::Error{"is no port: 0 to 65535", fmt::format("--port {}", *given.port)};
    ui::ServerOptions options{given.folder, given.host.value_or(""), static_cast<int>(given.port.value_or(kUsualPort))};
    auto server = ui::Server::start(options);
    if (!server.ok() && !given.port) {  // the usual one is taken
        options.port = 0;
        server = ui::Server::start(options);
    }
    if (!server.ok()) return server.error();
    say(fmt::format("{}\n", (*server)->address()));
    std::fflush(stdout);
    const auto signal = signals.next(std::nullopt);
    return signal ? 128 + signal->number : 0;
}

}  // namespace

void add_ui(const Command& program) {
    auto given = std::make_shared<UiArguments>();
    const Command command = program.command("ui", "show the runs of a folder in a browser, live");
    command.option("FOLDER", given->folder, "where runs, studies and reports lie").show_default();
    command.option("--host", given->host, "let other machines ask, too, at this numeric address; a token is printed then")
        .placeholder("ADDRESS");
    command.option("--port", given->port, "8642 unless given, or any that is free; 0: any").placeholder("PORT");
    command.footer(R"(Examples:
  millrace ui
  millrace ui runs/night --port 9000
  ssh -L 8642:127.0.0.1:8642 machine millrace ui       a machine far away, with nothing open to the network

It prints its address and serves until Ctrl-C. It reads the files that runs write anyway; nothing is sent anywhere.)");
    command.action([given] { return run_ui(*given); });
}

}  // namespace millrace::cli
