#pragma once
// A PostgreSQL server of the tests' own, in a temporary folder, without a network port.

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "temporary_folder.h"

namespace millrace::storage {

class PostgresServer {
public:
    /// The one server of this process, started when it is first asked for.
    static PostgresServer& shared() {
        static PostgresServer server;
        return server;
    }
    ~PostgresServer() {
        if (is_running_ && ::getpid() == owner_) stop();
    }
    PostgresServer(const PostgresServer&) = delete;
    PostgresServer& operator=(const PostgresServer&) = delete;

    /// Where Debian's package has its programs; empty when it is not installed.
    static std::filesystem::path programs() {
        std::error_code ignored;
        for (const auto& version : std::filesystem::directory_iterator("/usr/lib/postgresql", ignored))
            if (std::filesystem::exists(version.path() / "bin/initdb")) return version.path() / "bin";
        return {};
    }

    /// A new and empty database.
    std::string new_database() {
        const std::string name = "study" + std::to_string(next_++);
        EXPECT_TRUE(run("createdb -h " + folder_.path().string() + " -U postgres " + name));
        return "postgresql:///" + name + "?host=" + folder_.path().string() + "&user=postgres";
    }
    bool start() {
        is_running_ = run("pg_ctl -w -D " + data() + " -l " + data() + "/log -o \"-k " + folder_.path().string() +
                          " -c listen_addresses= -c fsync=off\" start");
        return is_running_;
    }
    bool stop() {
        is_running_ = false;
        return run("pg_ctl -w -m immediate -D " + data() + " stop");
    }
    [[nodiscard]] bool is_running() const { return is_running_; }

private:
    PostgresServer() {
        if (::getuid() == 0) run_plain("chown postgres " + folder_.path().string());
        if (run("initdb --no-sync -A trust -U postgres -D " + data())) start();
    }
    [[nodiscard]] std::string data() const { return (folder_ / "data").string(); }
    static bool run_plain(const std::string& command) { return std::system((command + " > /dev/null 2>&1").c_str()) == 0; }
    /// The server refuses to run as root.
    [[nodiscard]] bool run(const std::string& command) const {
        const std::string whole = "cd " + folder_.path().string() + " && " + programs().string() + "/" + command;
        if (::getuid() != 0) return run_plain("(" + whole + ")");
        return run_plain("runuser -u postgres -- sh -c '" + whole + "'");
    }

    test::TemporaryFolder folder_;
    pid_t owner_ = ::getpid();
    bool is_running_ = false;
    int next_ = 0;
};

}  // namespace millrace::storage
