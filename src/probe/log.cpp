#include "probe/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cstddef>

#include "probe/clock.h"

#include <fcntl.h>

namespace millrace::probe {
namespace {

char path[1024];

}  // namespace

void open_log() {
    const char* wanted = ::getenv("MILLRACE_PROBE_LOG");
    const std::size_t length = wanted != nullptr ? ::strlen(wanted) : sizeof path;
    if (length < sizeof path) ::memcpy(path, wanted, length + 1);
}

void log_line(const char* format, ...) {
    if (path[0] == 0) return;
    char text[1024];
    int used = ::snprintf(text, sizeof text, "%.6f probe %d: ", static_cast<double>(now()) * 1e-9, ::getpid());
    va_list arguments;
    va_start(arguments, format);
    used += ::vsnprintf(text + used, sizeof text - static_cast<std::size_t>(used) - 1, format, arguments);
    va_end(arguments);
    if (used > static_cast<int>(sizeof text) - 2) used = static_cast<int>(sizeof text) - 2;
    text[used++] = '\n';
    // Opened each time: a program may close all files it does not know, and the number would then be another file's.
    const bool to_error = ::strcmp(path, "-") == 0;
    const int file = to_error ? STDERR_FILENO : ::open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (file < 0) return;
    if (::write(file, text, static_cast<std::size_t>(used)) < 0) path[0] = 0;
    if (!to_error) ::close(file);
}

}  // namespace millrace::probe
