# Built by `make images`; the context is bin/image, with the static binaries and an empty directory.
FROM scratch
COPY bookied /bookied
COPY --chown=65532:65532 empty /data
USER 65532:65532
EXPOSE 3181 8000 7946/tcp 7946/udp
ENTRYPOINT ["/bookied"]
CMD ["run", "--data", "/data"]
