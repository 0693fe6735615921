#pragma once
// Files that survive a full disk and a crash: documents are replaced as a whole or not at all, streams only grow.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "io/checksum.h"

namespace millrace::io {

using base::Error;
using base::Result;
using base::Status;
using Path = std::filesystem::path;
using Bytes = std::span<const std::byte>;

inline Bytes bytes_of(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }

/// An error for `place` with what the system said; a full disk, quota or file size limit is named as such (disk_full). A name
/// that leads nowhere or to the wrong kind of thing is bad input (exit status 2); anything else is a machine that failed (1).
Error system_error(std::string_view what, const Path& place, int error_number);

/// Owns a file descriptor; closes it at the end of its life.
class FileDescriptor {
public:
    FileDescriptor() = default;
    explicit FileDescriptor(int descriptor) : descriptor_(descriptor) {}
    FileDescriptor(FileDescriptor&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
    FileDescriptor& operator=(FileDescriptor&& other) noexcept;
    ~FileDescriptor() { reset(); }

    [[nodiscard]] int get() const { return descriptor_; }
    [[nodiscard]] bool valid() const { return descriptor_ >= 0; }
    void reset();

private:
    int descriptor_ = -1;
};

/// Opens with O_CLOEXEC; `flags` and `mode` as for open(2).
Result<FileDescriptor> open_file(const Path& path, int flags, unsigned mode = 0644);

/// A file that is open for reading.
struct RegularFile {
    FileDescriptor file;
    std::uint64_t size = 0;  ///< bytes, when it was opened
};
/// Opens for reading; refuses anything but a regular file, without waiting for a writer where it is a pipe.
Result<RegularFile> open_regular(const Path& path);

/// Adds the first `size` bytes of a file.
Status add_file(const FileDescriptor& file, std::uint64_t size, Checksum64& sum, const Path& place);

constexpr std::size_t kDocumentCap = std::size_t{64} << 20;  ///< JSON documents: nothing of ours comes near

/// The whole file. Refuses anything but a regular file and anything above `cap` bytes before it allocates.
Result<std::vector<std::byte>> read_file(const Path& path, std::size_t cap = kDocumentCap);
Result<std::string> read_text(const Path& path, std::size_t cap = kDocumentCap);

/// Fills `into` from `offset`; an early end of the file is an error.
Status read_exactly(const FileDescriptor& file, std::span<std::byte> into, std::uint64_t offset, const Path& place);

/// Writes all of `bytes`, from `offset` on where it is given; waits where a pipe is full. Gives the error's number; 0: all is
/// written.
int write_bytes(const FileDescriptor& file, Bytes bytes, std::optional<std::uint64_t> offset = {});

/// Anything bytes can be poured into.
class ByteSink {
public:
    virtual ~ByteSink() = default;
    virtual Status write(Bytes bytes) = 0;
};

/// Buffered writer to a file that outlives it; counts and sums what went through. After an error every call repeats it.
class FileWriter : public ByteSink {
public:
    FileWriter(const FileDescriptor& file, Path place);

    Status write(Bytes bytes) override;
    Status flush();
    [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
    [[nodiscard]] std::uint64_t checksum() const { return sum_.value(); }

private:
    Status write_through(Bytes bytes);

    const FileDescriptor& file_;
    Path place_;
    std::vector<std::byte> buffer_;
    std::uint64_t bytes_ = 0;
    Checksum64 sum_;
    int failed_with_ = 0;
};

/// Size and checksum of a file as it was written.
struct WrittenFile {
    std::uint64_t bytes = 0;
    std::uint64_t checksum = 0;
};

/// Creates `path` (which must not exist), pours `fill` into it and syncs it. On failure nothing is left behind.
Result<WrittenFile> write_new_file(const Path& path, const std::function<Status(FileWriter&)>& fill);

/// An error when `path` leads to something that a file must not take the place of: a folder, a device, a pipe.
Status check_replaceable(const Path& path);

/// A file that a command was given, and the option or argument that named it.
struct NamedFile {
    const char* option;
    std::string_view path;  ///< empty: not given
};
/// An error when two of them are one file: the outputs would write over each other. Devices and pipes may be shared.
Status check_apart(std::span<const NamedFile> files);

/// Replaces `path` as a whole: temporary name in the same folder, sync, rename, sync of the folder. After an error the old file
/// is untouched and the temporary one is gone; after a crash `path` is the old file or the new one. See check_replaceable.
Result<WrittenFile> write_atomically(const Path& path, const std::function<Status(FileWriter&)>& fill);
Result<WrittenFile> write_atomically(const Path& path, Bytes bytes);
Result<WrittenFile> write_atomically(const Path& path, std::string_view text);

/// Replaces the content of an existing file without room for a second one: reserves what `text` needs before a byte changes.
Status overwrite_in_place(const Path& path, std::string_view text);

/// Creates `path` where it is missing and locks it for as long as the descriptor lives. Nothing: another process has the lock.
Result<std::optional<FileDescriptor>> try_lock(const Path& path);
/// Whether a process has the lock of `path`; needs no right to write. Two callers do not mistake each other for the holder.
bool is_locked(const Path& path);

/// Creates the folder, and those above it, where it is missing.
Status make_folder(const Path& folder);
/// What lies in it, by name.
Result<std::vector<Path>> list_folder(const Path& folder);

/// Makes renames and new names in `folder` durable.
Status sync_folder(const Path& folder);

}  // namespace millrace::io
