#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "places.h"

namespace millrace::cli {
namespace {

/// `millrace` on a terminal of its own.
class OnTerminal {
public:
    explicit OnTerminal(std::vector<std::string> words) {
        words.insert(words.begin(), (testing::program_folder() / "millrace").string());
        std::vector<char*> argv;
        for (std::string& word : words) argv.push_back(word.data());
        argv.push_back(nullptr);
        winsize size{24, 80, 0, 0};
        pid_ = forkpty(&terminal_, nullptr, nullptr, &size);
        if (pid_ != 0) return;
        setenv("TERM", "xterm", 1);
        setenv("LC_ALL", "C", 1);
        setenv("NO_COLOR", "1", 1);
        setenv("MILLRACE_NVML", "", 1);
        execv(argv[0], argv.data());
        _exit(127);
    }
    ~OnTerminal() {
        if (!ended_) {
            kill(pid_, SIGKILL);
            waitpid(pid_, nullptr, 0);
        }
        close(terminal_);
    }
    OnTerminal(const OnTerminal&) = delete;
    OnTerminal& operator=(const OnTerminal&) = delete;

    /// Reads until `part` was shown; false when the program ended or half a minute went by before.
    bool shows(const std::string& part) {
        for (int quiet = 0; said_.find(part) == std::string::npos;) {
            pollfd waited{terminal_, POLLIN, 0};
            if (poll(&waited, 1, 100) == 0) {
                if (++quiet > 300) return false;
                continue;
            }
            char bytes[4096];
            const ssize_t count = read(terminal_, bytes, sizeof bytes);
            if (count <= 0) return false;
            said_.append(bytes, static_cast<std::size_t>(count));
        }
        return true;
    }
    void type(char key) const { (void)!write(terminal_, &key, 1); }
    void send(int signal) const { kill(pid_, signal); }
    /// Waits until it has stopped, as Ctrl-Z makes programs do.
    void wait_for_stop() const { waitpid(pid_, nullptr, WUNTRACED); }
    /// Exit status, 1000 + n when signal n ended it.
    int wait() {
        shows("\x01 never shown");
        int raw = 0;
        waitpid(pid_, &raw, 0);
        ended_ = true;
        return WIFEXITED(raw) ? WEXITSTATUS(raw) : 1000 + WTERMSIG(raw);
    }
    [[nodiscard]] const std::string& said() const { return said_; }

private:
    pid_t pid_ = -1;
    int terminal_ = -1;
    bool ended_ = false;
    std::string said_;
};

TEST(KeysTerminal, LinesAreNoWiderThanTheTerminal) {
    OnTerminal keys({"train", "--keys"});
    EXPECT_EQ(keys.wait(), 0);
    std::istringstream lines(keys.said());
    std::size_t count = 0;
    for (std::string line; std::getline(lines, line); ++count) EXPECT_LE(line.size(), 81u) << line;  // and a carriage return
    EXPECT_GT(count, 100u);
    EXPECT_NE(keys.said().find("optim.lr = 0.001\r\n    learning rate"), std::string::npos) << keys.said();
}

constexpr const char* kTaken = "\033[?1049h";
constexpr const char* kGivenBack = "\033[?25h\033[?1049l";

TEST(WatchTerminal, TheScreenIsGivenBackHoweverItEnds) {
    for (const auto& [signal, status] :
         {std::pair{SIGINT, 0}, std::pair{SIGTERM, 143}, std::pair{SIGQUIT, 131}, std::pair{SIGABRT, 1000 + SIGABRT}}) {
        OnTerminal watch({"watch", "--interval", "20ms"});
        ASSERT_TRUE(watch.shows("millrace watch")) << watch.said();
        EXPECT_NE(watch.said().find(kTaken), std::string::npos);
        ASSERT_TRUE(watch.shows("RAM"));
        watch.send(signal);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
        if (signal == SIGABRT) continue;  // the sanitizer has a handler of its own
#endif
        EXPECT_EQ(watch.wait(), status);
        const std::size_t back = watch.said().rfind(kGivenBack);
        ASSERT_NE(back, std::string::npos) << signal;
        EXPECT_EQ(watch.said().find(kTaken, back), std::string::npos);
        const bool summed_up = watch.said().find("verdict", back) != std::string::npos;
        EXPECT_EQ(summed_up, signal != SIGABRT) << "the summary follows on the first screen";
    }
}

TEST(WatchTerminal, CtrlCReachesTheCommandOnce) {
    OnTerminal watch({"watch", "--interval", "20ms", "--", "sh", "-c",
                      "n=0; trap 'n=$((n+1)); echo caught $n' INT; echo ready; for i in 1 2 3 4 5 6 7 8; do sleep 0.05; done; "
                      "exit $((20+n))"});
    ASSERT_TRUE(watch.shows("ready")) << watch.said();
    watch.type('\x03');
    EXPECT_EQ(watch.wait(), 21) << watch.said();
    EXPECT_EQ(watch.said().find(kTaken), std::string::npos) << "the terminal is the command's";
    EXPECT_NE(watch.said().find("exit status 21"), std::string::npos);
}

TEST(WatchTerminal, StoppingGivesTheTerminalBackAndGoingOnTakesIt) {
    OnTerminal watch({"watch", "--interval", "20ms"});
    ASSERT_TRUE(watch.shows("RAM")) << watch.said();
    watch.type('\x1a');
    ASSERT_TRUE(watch.shows(kGivenBack));
    watch.wait_for_stop();
    watch.send(SIGCONT);
    ASSERT_TRUE(watch.shows(std::string(kGivenBack) + kTaken)) << watch.said();
    watch.type('\x03');
    EXPECT_EQ(watch.wait(), 0);
}

}  // namespace
}  // namespace millrace::cli
