/* Names below kafka.test mean 127.0.0.1 in one process that loads this first (LD_PRELOAD): librdkafka asks the
 * system's resolver, and tests leave that alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>

static const char ours[] = "kafka.test";

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
  int (*next)(const char *, const char *, const struct addrinfo *, struct addrinfo **) =
      (int (*)(const char *, const char *, const struct addrinfo *, struct addrinfo **))dlsym(RTLD_NEXT, "getaddrinfo");
  size_t length = name ? strlen(name) : 0, end = sizeof ours - 1;
  if (length >= end && strcmp(name + length - end, ours) == 0) name = "127.0.0.1";
  return next(name, service, hints, found);
}
