#pragma once
#include "io/file.h"

namespace millrace::io {

/// A folder that is held open: path() leads to this very folder wherever it is moved, and never to what took its place.
class KeptFolder {
public:
    /// `folder` must be there. `name` is what people call it; empty: `folder`.
    static Result<KeptFolder> open(const Path& folder, Path name = {});

    /// For every file that is written, read or removed inside. Valid while this object lives, in this process alone.
    [[nodiscard]] const Path& path() const { return path_; }
    /// For people: the name it was given while that leads to it, else where it is now.
    [[nodiscard]] Path name() const;
    /// Nothing can be written into it any more.
    [[nodiscard]] bool was_removed() const;
    /// The error with name() where it and its causes have path().
    [[nodiscard]] Error named(const Error& error) const;
    /// Locks it for as long as this object lives. False: another process has the lock. A file system that cannot lock a folder
    /// gives the lock to all.
    Result<bool> try_lock();

private:
    KeptFolder(FileDescriptor folder, Path path, Path name)
        : folder_(std::move(folder)), path_(std::move(path)), name_(std::move(name)) {}

    FileDescriptor folder_;
    Path path_, name_;
};

}  // namespace millrace::io
