#include "io/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <thread>

#include "io/line_file.h"
#include "temporary_folder.h"

namespace millrace::io {
namespace {

namespace fs = std::filesystem;

std::size_t files_in(const Path& folder) {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator{}));
}

/// Runs `body` in a child whose files cannot grow beyond `limit` bytes; true when it returned true.
template <class Body>
bool with_file_limit(rlim_t limit, Body body) {
    const pid_t child = ::fork();
    if (child == 0) {
        std::signal(SIGXFSZ, SIG_IGN);
        const rlimit bound{limit, limit};
        ::setrlimit(RLIMIT_FSIZE, &bound);
        ::_exit(body() ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(Checksum, DoesNotDependOnTheCuts) {
    std::vector<std::byte> bytes(1000);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * i);
    const std::uint64_t whole = checksum_of(bytes);
    for (const std::size_t cut : {1u, 7u, 31u, 32u, 33u, 500u}) {
        Checksum64 sum;
        for (std::size_t at = 0; at < bytes.size(); at += cut)
            sum.update(Bytes(bytes).subspan(at, std::min(cut, bytes.size() - at)));
        EXPECT_EQ(sum.value(), whole) << cut;
    }
}

TEST(Checksum, SeesEveryByteAndTheLength) {
    std::vector<std::byte> bytes(67);
    const std::uint64_t whole = checksum_of(bytes);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        bytes[i] = std::byte{1};
        EXPECT_NE(checksum_of(bytes), whole) << i;
        bytes[i] = std::byte{0};
    }
    bytes.push_back(std::byte{0});
    EXPECT_NE(checksum_of(bytes), whole);
    EXPECT_NE(checksum_of({}), whole);
}

TEST(WriteAtomically, ReplacesTheWholeFile) {
    const test::TemporaryFolder folder;
    ASSERT_TRUE(write_atomically(folder / "a", "a long first version").ok());
    const auto written = write_atomically(folder / "a", "second");
    ASSERT_TRUE(written.ok());
    EXPECT_EQ(written->bytes, 6u);
    EXPECT_EQ(written->checksum, checksum_of(bytes_of("second")));
    EXPECT_EQ(*read_text(folder / "a"), "second");
    EXPECT_EQ(files_in(folder.path()), 1u);
}

TEST(WriteAtomically, StepsOverWhatAKilledProcessOfTheSameNumberLeft) {
    const test::TemporaryFolder folder;
    std::string name;
    ASSERT_TRUE(write_atomically(folder / "a", [&](FileWriter& writer) {
                    for (const auto& entry : fs::directory_iterator(folder.path())) name = entry.path().filename().string();
                    return writer.write(std::as_bytes(std::span("x", 1)));
                }).ok());
    const std::size_t dash = name.rfind('-');
    const unsigned used = static_cast<unsigned>(std::stoul(name.substr(dash + 1)));
    // write_new_file leaves the counter alone.
    for (unsigned i = 1; i <= 3; ++i)
        ASSERT_TRUE(write_new_file(folder / (name.substr(0, dash + 1) + std::to_string(used + i)), [](FileWriter&) {
                        return base::ok();
                    }).ok());
    EXPECT_TRUE(write_atomically(folder / "a", "second").ok());
    EXPECT_EQ(*read_text(folder / "a"), "second");
}

TEST(WriteAtomically, FullDiskLeavesTheOldFileAndSaysSo) {
    const test::TemporaryFolder folder;
    ASSERT_TRUE(write_atomically(folder / "a", "old").ok());
    EXPECT_TRUE(with_file_limit(1000, [&] {
        const std::string large(500'000, 'x');
        const auto result = write_atomically(folder / "a", large);
        return !result.ok() && result.error().exit_status == 1 && result.error().place == (folder / "a").string() &&
               result.error().text().find("the old file is untouched") != std::string::npos &&
               result.error().text().find("disk is full") != std::string::npos;
    }));
    EXPECT_EQ(*read_text(folder / "a"), "old");
    EXPECT_EQ(files_in(folder.path()), 1u);
}

TEST(WriteAtomically, FailingCallbackLeavesNothing) {
    const test::TemporaryFolder folder;
    const auto result = write_atomically(folder / "a", [](FileWriter& writer) -> Status {
        MILLRACE_TRY(writer.write(bytes_of("half")));
        return Error{"changed my mind"};
    });
    ASSERT_FALSE(result.ok());
    EXPECT_NE(result.error().text().find("changed my mind"), std::string::npos);
    EXPECT_EQ(files_in(folder.path()), 0u);
}

TEST(WriteAtomically, LeavesDevicesAndPipesAlone) {
    const test::TemporaryFolder folder;
    ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
    fs::create_symlink("/dev/null", folder / "link");
    for (const char* name : {"pipe", "link"}) {
        const auto before = fs::symlink_status(folder / name).type();
        const auto result = write_atomically(folder / name, "x");
        ASSERT_FALSE(result.ok()) << name;
        EXPECT_NE(result.error().text().find("device or pipe"), std::string::npos) << result.error().text();
        EXPECT_EQ(fs::symlink_status(folder / name).type(), before) << name;
    }
    EXPECT_FALSE(write_atomically(folder.path(), "x").ok());
    EXPECT_EQ(files_in(folder.path()), 2u);
}

TEST(WriteAtomically, MissingFolderIsAnError) { EXPECT_FALSE(write_atomically("/nowhere/at/all/a", "x").ok()); }

TEST(FileWriter, FullDeviceIsAnErrorThatStays) {
    auto full = open_file("/dev/full", O_WRONLY);
    if (!full.ok()) GTEST_SKIP() << "no /dev/full here";
    FileWriter writer(*full, "/dev/full");
    EXPECT_TRUE(writer.write(bytes_of("fits the buffer")).ok());
    const auto flushed = writer.flush();
    ASSERT_FALSE(flushed.ok());
    EXPECT_NE(flushed.error().text().find("disk is full"), std::string::npos);
    EXPECT_FALSE(writer.write(bytes_of("more")).ok());
    EXPECT_FALSE(writer.flush().ok());
}

TEST(FileWriter, LargeAndSmallWritesKeepTheirOrder) {
    const test::TemporaryFolder folder;
    std::string expected;
    const auto result = write_atomically(folder / "a", [&](FileWriter& writer) -> Status {
        for (const std::size_t size : {3u, 300'000u, 0u, 262'144u, 7u, 262'143u, 262'145u}) {
            const std::string piece(size, static_cast<char>('a' + expected.size() % 26));
            expected += piece;
            MILLRACE_TRY(writer.write(bytes_of(piece)));
        }
        return base::ok();
    });
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(*read_text(folder / "a"), expected);
    EXPECT_EQ(result->checksum, checksum_of(bytes_of(expected)));
}

TEST(ReadFile, RefusesWhatIsTooLargeOrNoFile) {
    const test::TemporaryFolder folder;
    ASSERT_TRUE(write_atomically(folder / "a", "12345").ok());
    EXPECT_FALSE(read_file(folder / "a", 4).ok());
    EXPECT_TRUE(read_file(folder / "a", 5).ok());
    EXPECT_FALSE(read_file(folder.path()).ok());
    ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
    EXPECT_FALSE(read_file(folder / "pipe").ok());
}

TEST(OverwriteInPlace, KeepsTheFileAndItsNewLength) {
    const test::TemporaryFolder folder;
    const Path path = folder / "a";
    EXPECT_FALSE(overwrite_in_place(path, "x").ok()) << "there is nothing to overwrite";
    ASSERT_TRUE(write_atomically(path, "a long text").ok());
    fs::create_hard_link(path, folder / "b");
    ASSERT_TRUE(overwrite_in_place(path, "short").ok());
    EXPECT_EQ(read_text(folder / "b").value(), "short");
    ASSERT_TRUE(overwrite_in_place(path, "longer than before").ok());
    EXPECT_EQ(read_text(folder / "b").value(), "longer than before");
}

TEST(FileLock, IsHeldForAsLongAsItsDescriptor) {
    const test::TemporaryFolder folder;
    const Path path = folder / "lock";
    EXPECT_FALSE(is_locked(path));
    EXPECT_FALSE(fs::exists(path)) << "looking leaves nothing";
    {
        const auto lock = try_lock(path);
        ASSERT_TRUE(lock.ok() && *lock);
        EXPECT_TRUE(is_locked(path));
        const auto second = try_lock(path);
        ASSERT_TRUE(second.ok());
        EXPECT_FALSE(*second);
    }
    EXPECT_FALSE(is_locked(path));
    EXPECT_FALSE(try_lock(folder / "absent/lock").ok());
}

TEST(FileLock, IsOfTheFileThatHasTheName) {
    const test::TemporaryFolder folder;
    std::atomic<int> held{0}, of_nothing{0};
    const auto work = [&] {
        for (int i = 0; i < 3000; ++i) {
            const auto lock = try_lock(folder / "lock");
            if (!lock.ok() || !*lock) continue;
            struct stat locked {
            }, named{};
            ++held;
            of_nothing += ::fstat((*lock)->get(), &locked) == 0 && ::stat((folder / "lock").c_str(), &named) == 0 &&
                                  locked.st_ino == named.st_ino
                              ? 0
                              : 1;
            std::filesystem::remove(folder / "lock");  // as StagedFolder does before it lets go
        }
    };
    {
        std::vector<std::jthread> threads;
        for (int t = 0; t < 4; ++t) threads.emplace_back(work);
    }
    EXPECT_GT(held, 0);
    EXPECT_EQ(of_nothing, 0);
}

TEST(AppendStream, GrowsAndTruncates) {
    const test::TemporaryFolder folder;
    auto stream = AppendStream::open(folder / "s");
    ASSERT_TRUE(stream.ok());
    ASSERT_TRUE(stream->append_line("one").ok());
    const std::uint64_t after_one = stream->offset();
    ASSERT_TRUE(stream->append_line("two").ok());
    ASSERT_TRUE(stream->flush().ok());
    EXPECT_EQ(*read_text(folder / "s"), "one\ntwo\n");
    ASSERT_TRUE(stream->truncate_to(after_one).ok());
    ASSERT_TRUE(stream->append_line("three").ok());
    ASSERT_TRUE(stream->sync().ok());
    EXPECT_EQ(*read_text(folder / "s"), "one\nthree\n");
    EXPECT_FALSE(stream->truncate_to(11).ok());
}

TEST(AppendStream, TornLastLineDoesNotSwallowTheNext) {
    const test::TemporaryFolder folder;
    ASSERT_TRUE(write_atomically(folder / "s", "whole\nto").ok());
    auto stream = AppendStream::open(folder / "s");
    ASSERT_TRUE(stream.ok());
    ASSERT_TRUE(stream->append_line("next").ok());
    ASSERT_TRUE(stream->flush().ok());
    EXPECT_EQ(*read_text(folder / "s"), "whole\nto\nnext\n");
}

TEST(AppendStream, FullDiskKeepsWholeLinesAndTriesTheOthersAgain) {
    const test::TemporaryFolder folder;
    EXPECT_TRUE(with_file_limit(200, [&] {
        const auto set_limit = [](rlim_t limit) {
            const rlimit bound{limit, 200};
            ::setrlimit(RLIMIT_FSIZE, &bound);
        };
        set_limit(100);
        auto stream = AppendStream::open(folder / "s");
        const std::string line(49, 'x');
        if (!stream.ok() || !stream->append_line(line).ok() || !stream->flush().ok()) return false;
        if (!stream->append_line(line + line).ok() || stream->flush().ok() || fs::file_size(folder / "s") != 50) return false;
        if (stream->offset() != 149) return false;
        set_limit(200);
        return stream->append_line(line).ok() && stream->flush().ok() && stream->offset() == 199 && stream->lost() == 0;
    }));
    EXPECT_EQ(*read_text(folder / "s"), std::string(49, 'x') + "\n" + std::string(98, 'x') + "\n" + std::string(49, 'x') + "\n");
}

TEST(AppendStream, WhatIsKeptBackIsBoundedAndTheNewestIsLost) {
    const test::TemporaryFolder folder;
    EXPECT_TRUE(with_file_limit(10, [&] {
        auto stream = AppendStream::open(folder / "s");
        const std::string line((1u << 20) - 1, 'x');
        for (int i = 0; i < 20; ++i)
            if (stream->append_line(line).ok()) return false;
        return stream->offset() < (17u << 20) && stream->offset() % (1u << 20) == 0 && stream->lost() >= 4;
    }));
}

TEST(SystemError, BadNamesAreBadInputAndTheRestAFailedMachine) {
    for (const int number : {ENOENT, ENOTDIR, EISDIR, ENAMETOOLONG}) EXPECT_EQ(system_error("x", "y", number).exit_status, 2);
    for (const int number : {ENOSPC, EDQUOT, EFBIG, EIO, EACCES, EROFS, EMFILE})
        EXPECT_EQ(system_error("x", "y", number).exit_status, 1);
}

}  // namespace
}  // namespace millrace::io
