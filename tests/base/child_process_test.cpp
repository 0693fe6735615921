#include "base/child_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "base/signal_queue.h"
#include "temporary_folder.h"

namespace millrace::base {
namespace {

class ChildProcessTest : public ::testing::Test {
protected:
    static int status_of(const std::vector<std::string>& command) {
        auto child = ChildProcess::prepare(command);
        if (!child.ok()) return child.error().exit_status;
        const Status released = child->release();
        return released.ok() ? child->wait() : released.error().exit_status;
    }
    std::string write(const std::string& name, const std::string& text, unsigned mode) {
        const std::string path = (folder_.path() / name).string();
        std::ofstream(path) << text;
        chmod(path.c_str(), mode);
        return path;
    }
    std::string content(const std::string& name) {
        std::ifstream in(folder_.path() / name);
        return {std::istreambuf_iterator<char>(in), {}};
    }

    test::TemporaryFolder folder_;
};

TEST_F(ChildProcessTest, ExitStatusComesThrough) {
    EXPECT_EQ(status_of({"true"}), 0);
    EXPECT_EQ(status_of({"sh", "-c", "exit 7"}), 7);
    EXPECT_EQ(status_of({"/bin/sh", "-c", "exit 255"}), 255);
}

TEST_F(ChildProcessTest, DeathBySignalIs128PlusItsNumber) {
    EXPECT_EQ(status_of({"sh", "-c", "kill -KILL $$"}), 128 + SIGKILL);
    EXPECT_EQ(status_of({"sh", "-c", "kill -TERM $$"}), 128 + SIGTERM);
}

TEST_F(ChildProcessTest, HighExitStatusIsNoSignal) {
    for (const bool by_signal : {false, true}) {
        auto child = ChildProcess::prepare({"sh", "-c", by_signal ? "kill -TERM $$" : "exit 143"});
        ASSERT_TRUE(child.ok() && child->release().ok());
        EXPECT_EQ(child->wait(), 143);
        EXPECT_EQ(child->ended_by_signal(), by_signal);
    }
}

TEST_F(ChildProcessTest, MissingCommandIs127AndNamesIt) {
    for (const char* name : {"no-such-command-anywhere", "/no/such/file", "/etc/passwd/below"}) {
        const auto child = ChildProcess::prepare({name});
        ASSERT_FALSE(child.ok()) << name;
        EXPECT_EQ(child.error().exit_status, 127);
        EXPECT_NE(child.error().text().find(name), std::string::npos);
    }
    EXPECT_EQ(status_of({""}), 127);
    EXPECT_EQ(status_of({}), 127);
}

TEST_F(ChildProcessTest, WhatCannotBeExecutedIs126) {
    EXPECT_EQ(status_of({folder_.path().string()}), 126);
    EXPECT_EQ(status_of({write("no-program", "\x01\x02 neither a program nor a script", 0755)}), 126);
    EXPECT_EQ(status_of({write("plain", "#!/bin/sh\n", 0644)}), 126);
    EXPECT_EQ(status_of({write("interpreter-gone", "#!/no/such/interpreter\n", 0755)}), 127);
}

TEST_F(ChildProcessTest, PathIsSearchedInItsOrder) {
    std::filesystem::create_directories(folder_.path() / "a");
    std::filesystem::create_directories(folder_.path() / "b/tool-of-ours");
    std::filesystem::create_directories(folder_.path() / "c");
    const std::string tool = write("c/tool-of-ours", "#!/bin/sh\n", 0755), root = folder_.path().string();
    const auto found = find_program("tool-of-ours", root + "/a:" + root + "/b:" + root + "/c");
    ASSERT_TRUE(found.ok()) << found.error().text();
    EXPECT_EQ(*found, tool);
    EXPECT_EQ(find_program("tool-of-ours", root + "/a:" + root + "/b").error().exit_status, 126);
    EXPECT_EQ(find_program("tool-of-ours", root + "/a").error().exit_status, 127);
    EXPECT_EQ(find_program("tool-of-ours", "").error().exit_status, 127);
}

TEST_F(ChildProcessTest, RunsNothingBeforeItIsReleased) {
    const std::string mark = (folder_.path() / "mark").string();
    {
        auto child = ChildProcess::prepare({"touch", mark});
        ASSERT_TRUE(child.ok());
        EXPECT_GT(child->pid(), 0);
        EXPECT_FALSE(child->poll());
    }
    EXPECT_FALSE(std::filesystem::exists(mark)) << "dropped without release";
    EXPECT_EQ(status_of({"touch", mark}), 0);
    EXPECT_TRUE(std::filesystem::exists(mark));
}

TEST_F(ChildProcessTest, KilledWhileHeldIsNoTroubleToRelease) {
    auto child = ChildProcess::prepare({"true"});
    ASSERT_TRUE(child.ok());
    child->send(SIGKILL);
    (void)child->release();
    EXPECT_EQ(child->wait(), 128 + SIGKILL);
    child->send(SIGTERM);  // nobody there: nothing to hit
    EXPECT_EQ(child->wait(), 128 + SIGKILL);
}

TEST_F(ChildProcessTest, TheCommandStartsWithDefaultSignals) {
    const std::string out = (folder_.path() / "status").string();
    struct sigaction files {
    }, pipes{};
    sigaction(SIGXFSZ, nullptr, &files);
    sigaction(SIGPIPE, nullptr, &pipes);
    std::signal(SIGXFSZ, SIG_IGN);
    std::signal(SIGPIPE, SIG_IGN);
    const std::array caught{SIGTERM, SIGCHLD, SIGUSR1};
    {
        SignalQueue queue(caught);
        EXPECT_EQ(status_of({"sh", "-c", "grep -E 'Sig(Blk|Ign)' /proc/self/status > " + out}), 0);
    }
    sigaction(SIGXFSZ, &files, nullptr);
    sigaction(SIGPIPE, &pipes, nullptr);
    std::istringstream lines(content("status"));
    std::string name;
    unsigned long long bits = 0;
    int seen = 0;
    while (lines >> name >> std::hex >> bits) {
        const unsigned long long bad = (1ull << (SIGXFSZ - 1)) | (1ull << (SIGPIPE - 1)) | (1ull << (SIGTERM - 1)) |
                                       (1ull << (SIGCHLD - 1)) | (1ull << (SIGUSR1 - 1));
        EXPECT_EQ(bits & bad, 0u) << name;
        ++seen;
    }
    EXPECT_EQ(seen, 2);
}

TEST_F(ChildProcessTest, OutputCanGoToStandardError) {
    const int kept = dup(STDERR_FILENO);
    const int file = open((folder_.path() / "err").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    dup2(file, STDERR_FILENO);
    auto child = ChildProcess::prepare({"echo", "said"}, {.out = STDERR_FILENO});
    const bool released = child.ok() && child->release().ok();
    if (released) child->wait();
    dup2(kept, STDERR_FILENO);
    close(kept);
    close(file);
    ASSERT_TRUE(released);
    EXPECT_EQ(content("err"), "said\n");
}

TEST_F(ChildProcessTest, SurvivesAParentThatIgnoresChildren) {
    std::signal(SIGCHLD, SIG_IGN);
    EXPECT_EQ(status_of({"sh", "-c", "exit 9"}), 9);
}

TEST(SignalQueue, HandsOutSignalsOneByOneAndTheEndOfAChild) {
    const std::array caught{SIGTERM, SIGCHLD};
    SignalQueue queue(caught);
    kill(getpid(), SIGTERM);
    const auto event = queue.next(std::nullopt);
    ASSERT_TRUE(event);
    EXPECT_EQ(event->number, SIGTERM);
    EXPECT_FALSE(event->from_terminal);
    EXPECT_FALSE(queue.next(std::chrono::nanoseconds{0}));
    EXPECT_FALSE(queue.next(std::chrono::nanoseconds{-1}));

    auto child = ChildProcess::prepare({"sh", "-c", "exit 3"});
    ASSERT_TRUE(child.ok() && child->release().ok());
    while (!child->poll()) queue.next(std::nullopt);
    EXPECT_EQ(child->poll(), 3);
}

TEST(SignalQueue, WakeEndsTheWait) {
    const std::array caught{SIGTERM};
    SignalQueue queue(caught);
    queue.wake();
    EXPECT_FALSE(queue.next(std::nullopt));
    EXPECT_FALSE(queue.next(std::chrono::nanoseconds{0}));
}

TEST(SignalQueue, IgnoredSignalsStayIgnored) {
    std::signal(SIGUSR2, SIG_IGN);
    const std::array caught{SIGUSR2};
    {
        SignalQueue queue(caught);
        kill(getpid(), SIGUSR2);
        EXPECT_FALSE(queue.next(std::chrono::nanoseconds{0}));
    }
    std::signal(SIGUSR2, SIG_DFL);
}

}  // namespace
}  // namespace millrace::base
